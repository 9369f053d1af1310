"""TFLOP/s of all contenders on named shapes: bars that lie, the shapes below each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fagen.bench.html.entries import MODES, Entry, fastest, labels
from fagen.bench.html.legend import bar
from fagen.bench.html.plots import Drawing, Panel, rate
from fagen.page.figure import colour

BAR, APART = 11, 18  # px of a bar, and between shapes
LONGEST = 40  # characters of a shape's name that are shown
CHARACTER = 8  # px, rather more than less


def panels(cases: Sequence[Entry], names: Sequence[str]) -> list[Panel]:
    """A panel for each mode, of all cases that are not the papers'."""
    named = {mode: [case for case in cases if case.mode == mode and not case.is_paper] for mode in MODES}
    return [
        Panel(MODES[mode].capitalize(), _draw(f"shapes{i}", own, names))
        for i, (mode, own) in enumerate(named.items())
        if own
    ]


def _draw(name: str, cases: Sequence[Entry], names: Sequence[str]) -> str:
    shown = {case: _cut(label) for case, label in labels(cases).items()}
    rows = {case: [each for each in names if each in case.contenders] for case in cases}
    height = sum(BAR * len(row) + APART for row in rows.values())
    left = 14 + CHARACTER * max(max(len(shown[case]), len(case.sizes)) for case in cases)
    drawing = Drawing(name, (700, height + 50), (left, 44, 4, 46))
    drawing.axes.set(xlim=(0, fastest(cases) or 1), ylim=(height, 0), yticks=[], xlabel="TFLOP/s")
    drawing.axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    drawing.axes.grid(visible=False, axis="y")
    top = 0.0
    for case, row in rows.items():
        _name(drawing, case, shown[case], top + (BAR * len(row) + APART) / 2)
        for place, each in enumerate(row):
            _bar(drawing, case, each, top + APART / 2 + BAR * (place + 0.5), names.index(each))
        top += BAR * len(row) + APART
    return drawing.svg()


def _cut(label: str) -> str:
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 3]}..."


def _name(drawing: Drawing, case: Entry, shown: str, y: float) -> None:
    def write(words: str, up: int, **style: Any) -> Any:
        at: Any = ("axes fraction", "data")
        style |= {"xycoords": at, "textcoords": "offset points", "ha": "right"}
        return drawing.axes.annotate(words, (0, y), (-8, up), **style)

    drawing.say(write(shown, 1, va="bottom"), f"{case.shape_name}: {', '.join(case.kind)}")
    write(case.sizes, -1, va="top", color=colour("quiet"), fontsize=10)


def _bar(drawing: Drawing, case: Entry, name: str, y: float, series: int) -> None:
    value, axes = case.tflops(name), drawing.axes
    if value:
        drawing.say(axes.barh(y, value, BAR * 0.9, clip_on=False, color=bar(series))[0], case.words(name))
    text = axes.annotate(
        rate(value) if value else "not timed",
        (value, y),
        (4, 0),
        textcoords="offset points",
        va="center_baseline",
        fontsize=9.5,
        color=colour("ink" if value else "quiet"),
        annotation_clip=False,
    )
    drawing.say(text, case.words(name))
