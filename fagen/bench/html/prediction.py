"""The models' times against the measured ones: on the diagonal they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from fagen.bench.html.entries import MODES, Entry, bounds
from fagen.bench.html.legend import mark
from fagen.bench.html.plots import Drawing, Panel
from fagen.page.figure import colour

NEAR = 0.1  # share of the measured time; drawn as a line to both sides
LABELLED = 5  # cases that are furthest off


@dataclass(frozen=True)
class Pair:
    """A time of a model's and the one measured, in microseconds."""

    predicted: float
    measured: float
    label: str  # short
    words: str
    kind: str  # has a mark of its own

    @property
    def off(self) -> float:
        """By which share of the measured time the predicted one is longer."""
        return self.predicted / self.measured - 1


def panels(cases: Sequence[Entry]) -> list[Panel]:
    """A panel for each mode."""
    known, found = bounds(cases), []
    for i, mode in enumerate(MODES):
        pairs = [pair for case in cases if case.mode == mode and (pair := _pair(case))]
        if pairs:
            furthest = sorted(pairs, key=lambda pair: -abs(pair.off))[:LABELLED]
            named = [pair for pair in furthest if abs(pair.off) > NEAR]
            svg = draw(f"predicted{i}", pairs, known, named)
            found.append(Panel(MODES[mode].capitalize(), svg, accuracy(pairs, "case")))
    return found


def accuracy(pairs: Sequence[Pair], thing: str) -> str:
    """`rms 6.1%, at worst -14.0% (h200_fa3, d128_none_1024, fwd), 43 cases`, of predicted over measured."""
    rms = sqrt(sum(pair.off**2 for pair in pairs) / len(pairs))
    worst = max(pairs, key=lambda pair: abs(pair.off))
    many = "" if len(pairs) == 1 else "s"
    return f"rms {rms:.1%}, at worst {worst.off:+.1%} ({worst.words}), {len(pairs)} {thing}{many}"


def draw(name: str, pairs: Sequence[Pair], kinds: Sequence[str], named: Sequence[Pair]) -> str:
    """Markup of the plot; the pairs in `named` have their labels."""
    low = min(min(pair.predicted, pair.measured) for pair in pairs) / 1.4
    high = max(max(pair.predicted, pair.measured) for pair in pairs) * 1.4
    drawing = Drawing(name, (460, 430), (60, 14, 8, 42))
    drawing.logarithmic((low, high), (low, high))
    axes = drawing.axes
    axes.set(xlabel="measured (us, median)", ylabel="predicted (us)")
    axes.plot([low, high], [low, high], color=colour("ink"), linewidth=1.2)
    for side in (1 + NEAR, 1 - NEAR):
        ends = [low * side, high * side]
        axes.plot([low, high], ends, color=colour("quiet"), linewidth=0.9, linestyle="--")
    for pair in pairs:
        drawing.avoid(pair.measured, pair.predicted)
        dot = axes.plot(pair.measured, pair.predicted, **mark(pair.kind, kinds), clip_on=False)[0]
        times = f"measured {pair.measured:,.1f} us, predicted {pair.predicted:,.1f} us ({pair.off:+.1%})"
        drawing.say(dot, f"{pair.words}: {times}")
    for pair in named:
        drawing.label(pair.measured, pair.predicted, pair.label)
    return drawing.svg()


def _pair(case: Entry) -> Pair | None:
    if not (case.ours and case.ours.microseconds and case.predicted_us):
        return None
    return Pair(case.predicted_us, case.ours.microseconds, case.shape_name[:30], str(case), case.bound)
