"""The shell of pages: what it escapes, and what a browser makes of it."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from fagen.page.page import SERIES, Section, colours, render, table

HOSTILE = '<script>alert("1")</script> & <img src=http://example.com/x onerror=alert(1)>'
NESTED = '<svg viewBox="0 0 300 40" width="300"><text x="4" y="20" fill="currentColor">axis</text></svg>'


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.html"
    rows = [["a case", 1.25, HOSTILE], ["another", 2, "long " * 60]]
    sections = [
        Section("First & last", table(["case", "ms", "text"], rows), note=HOSTILE),
        Section("A picture", NESTED),
        Section("Code", "<pre>" + "x" * 400 + "</pre>"),
    ]
    path.write_text(render("A page", sections, lead="What it is about."), encoding="utf-8")
    return path


def test_texts_are_escaped(page):
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text and "<img" not in text
    assert text.count("&lt;script&gt;") == 2
    assert "First &amp; last" in text and 'id="first-last"' in text


def test_nothing_is_asked_of_a_network(page):
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert not re.search(r'(src|href)="(?!#)', text)


def test_both_schemes_name_the_same_colours():
    schemes = re.findall(r":root\s*\{(.*?)\}", colours(), re.DOTALL)
    light, dark = (set(re.findall(r"--[a-z0-9-]+(?=:)", scheme)) for scheme in schemes)
    assert light == dark
    assert {f"var({name})" for name in light} >= set(SERIES)


@pytest.mark.parametrize("width", [900, 1600])
def test_a_browser_finds_nothing_wrong(page, chromium, width):
    seen = {scheme: chromium.look(page, scheme, width) for scheme in ("light", "dark")}
    for each in seen.values():
        each.must_be_fine()
    assert len({each.screenshot.read_bytes() for each in seen.values()}) == 2


def test_the_browser_sees_what_is_wrong(tmp_path, chromium):
    path = tmp_path / "bad.html"
    path.write_text(
        '<body style="background: white"><div style="width: 1200px">wide</div>'
        '<p style="color: #ccc">faint</p>'
        '<svg width="100" height="40"><text x="4" y="20">over</text><text x="6" y="22">lies</text>'
        '<text x="80" y="36">leaves</text></svg>'
        '<img src="http://127.0.0.1:9/x.png"><script>throw Error("oh")</script>',
        encoding="utf-8",
    )
    seen = chromium.look(path, "light", 1000)
    assert seen.overflow > 100
    assert seen.faint and seen.faint[0].startswith("faint")
    assert seen.cut == ("leaves",)
    assert seen.overlapping == ("over | lies",)
    assert seen.requests == ("http://127.0.0.1:9/x.png",)
    assert any("oh" in line for line in seen.console)


def scheme(number: int) -> dict[str, np.ndarray]:
    """Linear RGB of the colours of the light (0) or the dark scheme (1)."""
    found = re.findall(r":root\s*\{(.*?)\}", colours(), re.DOTALL)[number]
    values = re.findall(r"--(\w+): #([0-9a-f]{6})", found)
    srgb = {name: np.array([int(value[i : i + 2], 16) / 255 for i in (0, 2, 4)]) for name, value in values}
    return {n: np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) for n, c in srgb.items()}


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    low, high = sorted(float(np.array([0.2126, 0.7152, 0.0722]) @ colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def oklab(colour: np.ndarray) -> np.ndarray:
    """Ottosson, A perceptual color space for image processing (2020)."""
    cones = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
    space = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    return np.array(space) @ np.cbrt(np.array(cones) @ np.clip(colour, 0, 1))


# Full protanopia and deuteranopia: Machado, Oliveira and Fernandes (2009).
EYES = {
    "all three cones": np.eye(3),
    "protan": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deutan": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
}


@pytest.mark.parametrize("number", [0, 1], ids=["light", "dark"])
def test_series_stand_out_from_the_page(number):
    found = scheme(number)
    assert min(contrast(found[f"s{i}"], found["page"]) for i in range(10)) > 2.95


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("number", [0, 1], ids=["light", "dark"])
def test_the_first_five_series_are_told_apart_by_all_eyes(number, eyes):
    found = [oklab(np.array(EYES[eyes]) @ scheme(number)[f"s{i}"]) for i in range(5)]
    assert min(np.linalg.norm(one - other) for one, other in combinations(found, 2)) > 0.09


@pytest.mark.parametrize("number", [0, 1], ids=["light", "dark"])
def test_a_number_is_read_on_every_colour_of_a_heat_map(number):
    found = scheme(number)
    assert min(contrast(found["ink"], found[ground]) for ground in ("panel", "fast", "slow")) > 4.5


def test_columns_of_numbers_are_flush_right():
    markup = table(["name", "ms", "speed", "nothing"], [["1 a", 1, "1.5 x", "-"], ["b", 1.5, "2 x", ""]])
    assert [*re.findall(r"<(t[hd])[^>]* class=text>(\w+)", markup)] == [
        ("th", "name"),
        ("td", "1"),
        ("td", "b"),
    ]


def test_a_table_without_rows_has_its_head():
    assert "<th" in table(["name"], [])
