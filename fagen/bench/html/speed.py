"""TFLOP/s of all contenders against sequence length, drawn as in the FlashAttention papers."""

from __future__ import annotations

from collections.abc import Sequence

from fagen.bench.html.entries import Entry, by_kind, caption, fastest
from fagen.bench.html.legend import bar
from fagen.bench.html.plots import Drawing, Panel, length, rate
from fagen.page.figure import colour

GROUP = 0.84  # of the room of a length, that its bars fill
WIDEST = 56  # px of a bar
ACROSS, UPWARDS = 24, 10  # px of a bar from which on its value is written across, upwards


def panels(cases: Sequence[Entry], names: Sequence[str]) -> list[Panel]:
    """A panel for each head size, mask and mode of the papers' cases; those of a mode share their scale."""
    kinds = by_kind(case for case in cases if case.is_paper)
    tops: dict[str, float] = {}
    for (mode, *_), own in kinds.items():
        tops[mode] = max(tops.get(mode, 1), fastest(own))
    return [
        Panel(caption(mode, d, mask), _draw(f"speed{i}", own, names, tops[mode]), rest)
        for i, ((mode, d, mask, rest), own) in enumerate(kinds.items())
    ]


def _draw(name: str, cases: Sequence[Entry], names: Sequence[str], top: float) -> str:
    drawing = Drawing(name, (460, 290), (46, 6, 22, 42))
    axes = drawing.axes
    axes.set(xlim=(-0.5, len(cases) - 0.5), ylim=(0, top * 1.06))
    axes.set_xticks(range(len(cases)), [length(case.shape["seqlen_q"]) for case in cases])
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("sequence length (tokens, k = 1024)")
    axes.set_ylabel("TFLOP/s")
    timed = [each for each in names if any(case.tflops(each) for case in cases)]
    px = drawing.inner[0] / len(cases)
    width = min(GROUP / max(1, len(timed)), WIDEST / px)
    for group, case in enumerate(cases):
        for place, each in enumerate(timed):
            if each in case.contenders:
                x = group + (place + 0.5 - len(timed) / 2) * width
                _bar(drawing, case, each, x, width * px, names.index(each))
    return drawing.svg()


def _bar(drawing: Drawing, case: Entry, name: str, x: float, px: float, series: int) -> None:
    """A bar that has room for `px` pixels, its value above it; a cross where there is none."""
    value, axes = case.tflops(name), drawing.axes
    if not value:
        text = axes.text(x, 0, "x", ha="center", va="bottom", color=colour("quiet"))
        drawing.say(text, case.words(name))
        return
    width = 0.92 * px / drawing.inner[0] * (axes.get_xlim()[1] - axes.get_xlim()[0])
    drawing.say(axes.bar(x, value, width, clip_on=False, color=bar(series))[0], case.words(name))
    if px >= UPWARDS:
        axes.annotate(
            rate(value),
            (x, value),
            (0, 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            rotation=0 if px >= ACROSS else 90,
            fontsize=10 if px > UPWARDS + 2 else 9,
            annotation_clip=False,
        )
