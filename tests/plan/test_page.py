"""The page of a plan: everything `fagen plan` says, and pictures that a browser shows well."""

from html import escape

import pytest

from fagen.paths import SPECS
from fagen.plan import explain, page
from fagen.plan.launch import Shape
from fagen.plan.planner import plans
from fagen.spec.load import load_spec

SHAPE = Shape(2, 4096, 4096, 16, 4)
# Texts that stick out of a box which they begin in or end in, by their boxes in the window.
STICKING_OUT = """() => [...document.querySelectorAll("svg.drawing")].flatMap(svg => {
  const boxes = [...svg.querySelectorAll("rect.box")].map(each => each.getBoundingClientRect());
  return [...svg.querySelectorAll("text")].filter(text => {
    const t = text.getBoundingClientRect();
    return boxes.some(b => t.left < b.right && b.left < t.right && t.top < b.bottom && b.top < t.bottom &&
      !(t.left >= b.left && t.right <= b.right && t.top >= b.top - 2 && t.bottom <= b.bottom + 2));
  }).map(text => text.textContent);
})"""


@pytest.fixture(scope="module")
def text(drawn):
    return page.render(drawn, SHAPE)


def test_all_tables_of_all_passes_are_there(drawn, text):
    for plan in drawn:
        direction = plan.direction.capitalize()
        assert f">{direction}: tables</h2>" in text
        for section in explain.sections(plan, SHAPE):
            assert f"<h3>{escape(section.title)}</h3>" in text
            for row in section.rows:
                assert all(escape(explain.cell_text(cell)) in text for cell in row)
            assert all(escape(note) in text for note in section.notes)


def test_the_predicted_time_comes_first(drawn, text):
    first = text.index("Predicted time</h2>")
    for plan in drawn:
        facts = explain.to_json(plan, SHAPE)["prediction"]
        assert first < text.index(f"<td>{explain.cell_text(facts['time_us'])}</td>", first) < first + 2000


def test_a_timeline_is_v3s_forward(drawn, text):
    assert ("Forward: timeline</h2>" in text) == (drawn[0].spec.family == "v3")
    assert "Backward: timeline" not in text


@pytest.mark.parametrize("shape", [Shape(1, 1, 4096, 16, 1), Shape(3, 100, 0, 4, 4)], ids=str)
@pytest.mark.parametrize("name", ["a100_fa1", "h200_fa2", "h200_fa3"])
def test_one_query_and_no_keys_have_pages(name, shape):
    assert "Backward: traffic" in page.render(plans(load_spec(SPECS / f"{name}.yaml")), shape)


@pytest.mark.parametrize("drawn", ["a100_fa1", "h200_fa3_d64", "long_name"], indirect=True)
def test_a_browser_shows_it_well(text, chromium, tmp_path):
    written = tmp_path / "plan.html"
    written.write_text(text, encoding="utf-8")
    for scheme, width in (("light", 1400), ("dark", 900)):
        chromium.look(written, scheme, width).must_be_fine()
    opened = chromium.browser.new_page(viewport={"width": 1200, "height": 900})
    opened.goto(written.as_uri())
    assert opened.evaluate(STICKING_OUT) == []
    opened.close()
