"""The elements of drawings."""

import xml.etree.ElementTree as ET

import pytest

from fagen.plan.svg import SIZE, amount, arrow, drawing, lines_of, rect, text, width_of


def test_texts_are_escaped():
    hostile = "<script>&\"'"
    drawn = drawing(hostile, 10, [text(0, 0, hostile), rect(0, 0, 1, 1, tip=hostile)])
    assert "<script" not in drawn
    assert "".join(ET.fromstring(drawn).itertext()).count(hostile) == 3


@pytest.mark.parametrize("width", [10, 60, 200, 1000])
def test_lines_are_no_wider_than_they_may_be(width):
    words = "a few words and one_that_is_rather_long_for_a_word, then a few more"
    lines = lines_of(words, width)
    assert all(width_of(line) <= max(width, width_of("a")) for line in lines)
    if width == 1000:
        assert lines == [words]
    if width == 60:
        assert any(line.endswith("…") for line in lines)
    assert lines_of("", width) == [""]


@pytest.mark.parametrize(
    ("bytes_", "says"), [(48, "48 B"), (65536, "65,536 B = 64 KiB"), (2032, "2,032 B = 1.984 KiB")]
)
def test_amounts_are_exact_and_readable(bytes_, says):
    assert amount(bytes_) == says


@pytest.mark.parametrize("end", [(10, 0), (-10, 0), (0, 10), (0, -10)], ids=str)
def test_an_arrows_head_is_at_its_end(end):
    shaft, head = arrow([(0, 0), end])
    tip, *back = [tuple(map(float, p.split())) for p in head.split('"')[1].removeprefix("M").split(" L")]
    assert tip == end
    assert all(abs(x) <= SIZE and abs(y) <= SIZE for x, y in back)
    assert sum(x for x, _ in back) == pytest.approx(2 * (end[0] - 0.8 * end[0]))
    assert "arrow" in shaft
