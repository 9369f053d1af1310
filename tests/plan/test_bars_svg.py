"""Bars: to scale, against their limit."""

import xml.etree.ElementTree as ET

import pytest

from fagen.plan.bars_svg import Bar, Part, side_by_side, stacked
from fagen.plan.svg import WIDTH

SVG = "{http://www.w3.org/2000/svg}"


def rects(text, css):
    root = ET.fromstring(text)
    return [
        (float(r.attrib["x"]), float(r.attrib["width"]))
        for r in root.iter(f"{SVG}rect")
        if r.get("class") == css
    ]


def test_parts_lie_side_by_side_to_the_scale_of_the_limit():
    text = stacked("memory", [Part("Q tile", 25), Part("K <ring>", 50, "a*b")], 100, "bytes")
    assert rects(text, "part cell") == [(0, WIDTH / 4), (WIDTH / 4, WIDTH / 2)]
    assert "75 of 100 bytes, 25 free" in text
    assert not rects(text, "over")


def test_what_is_too_much_is_framed():
    text = stacked("registers", [Part("a", 150), Part("b", 50)], 100, "registers")
    assert rects(text, "part cell") == [(0, WIDTH * 0.75), (WIDTH * 0.75, WIDTH / 4)]
    ((start, _),) = rects(text, "over")
    assert start == WIDTH / 2
    assert "200 of 100 registers, 100 too many" in text


def test_parts_have_a_colour_each():
    text = stacked("t", [Part(name, 1) for name in ("Q a", "Q b", "K", "fragments", "S", "V")], 6, "bytes")
    root = ET.fromstring(text)
    hues = [r.get("fill") for r in root.iter(f"{SVG}rect") if r.get("class") == "part cell"]
    assert len(set(hues)) == len(hues) == 6


def test_alternatives_share_a_scale():
    found = rects(side_by_side("t", [Bar("a", 4, "four"), Bar("b", 1, "one"), Bar("c", 0, "none")]), "bar")
    assert found[0][1] == pytest.approx(4 * found[1][1], rel=0.01)
    assert len({start for start, _ in found}) == 1
    assert ET.fromstring(side_by_side("t", [Bar("a", 0, "nothing moves")])) is not None
