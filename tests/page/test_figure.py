"""matplotlib's figures inside a page: colours, fonts, words under the pointer."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from fagen.page.figure import PAINTS, SETTINGS, colour, inline

matplotlib = pytest.importorskip("matplotlib")


def drawn(name: str = "one", words: str = "axis", title: str = "a point") -> str:
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        figure = Figure((100 / 72, 80 / 72), dpi=72)
        axes = figure.add_axes((0.2, 0.2, 0.7, 0.7))
        axes.set_xlabel(words)
        axes.bar(0, 1, color=colour("hatch7"))
        axes.plot(0, 2, "o", color=colour("s3"))[0].set_gid("point")
        return inline(figure, name, {"point": title})


def test_colours_are_the_pages():
    svg = drawn()
    assert not re.search("#[0-9a-f]{6}", svg)
    for paint in ("var(--s3)", "url(#hatch7)", "var(--line)", "var(--ink)"):
        assert paint in svg


def test_each_paint_comes_back_as_itself():
    from matplotlib.colors import to_hex

    assert len({to_hex(colour(paint)) for paint in PAINTS}) == len(PAINTS)


def test_sizes_are_css_pixels_and_fonts_the_pages():
    root = ElementTree.fromstring(drawn())
    assert (root.get("width"), root.get("height"), root.get("viewBox")) == ("100", "80", "0 0 100 80")
    assert root.get("font-size") == "11"
    assert "DejaVu" not in drawn()


def test_texts_are_escaped_and_shown_as_they_are():
    root = ElementTree.fromstring(drawn(words="<b>$x^2$ & y", title="<script>"))
    assert "<b>$x^2$ & y" in [text.text for text in root.iter("text")]
    assert [title.text for title in root.iter("title")] == ["<script>"]


def test_the_title_belongs_to_what_it_is_about():
    group = next(each for each in ElementTree.fromstring(drawn()).iter("g") if each.find("title") is not None)
    assert [mark.get("style") for mark in group.iter("use")] == ["fill: var(--s3); stroke: var(--s3)"]


def test_what_is_referred_to_is_there_and_each_figures_own():
    one, two = drawn("one"), drawn("two")
    for svg, name in ((one, "one"), (two, "two")):
        wanted = set(re.findall(r"(?:href=\"|url\()#([\w-]+)", svg)) - {"hatch7"}
        assert wanted and wanted <= set(re.findall(r'\bid="([\w-]+)"', svg))
        assert all(identity.startswith(name) for identity in wanted)


def test_the_same_figure_is_the_same_text():
    assert drawn() == drawn()
