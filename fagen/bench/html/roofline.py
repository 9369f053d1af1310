"""fagen's cases under the roof of their device: how fast their arithmetic intensity lets them be."""

from __future__ import annotations

from collections.abc import Sequence

from fagen.bench.html.entries import OURS, Entry, bounds, by_kind, caption, decimal
from fagen.bench.html.legend import mark
from fagen.bench.html.plots import Drawing, Panel, length
from fagen.page.figure import colour

Point = tuple[float, float]  # FLOP per byte, TFLOP/s


def panels(cases: Sequence[Entry]) -> list[Panel]:
    """A panel for each mode, head size and device."""
    found: dict[tuple[str, str, float, float], list[Entry]] = {}
    for (mode, d, *_), own in by_kind(cases).items():
        for case in own:
            if case.hbm_bytes and case.tflops(OURS):
                key = mode, d, case.tensor_tflops, case.hbm_bytes_per_s
                found.setdefault(key, []).append(case)
    known = bounds(cases)
    return [
        Panel(caption(mode, d), _draw(f"roof{i}", own, known, tensor, hbm))
        for i, ((mode, d, tensor, hbm), own) in enumerate(found.items())
    ]


def _draw(name: str, cases: Sequence[Entry], known: Sequence[str], tensor: float, hbm: float) -> str:
    points = {case: _point(case) for case in cases}
    ridge = tensor * 1e12 / hbm
    left = min(ridge / 3, *(x for x, _ in points.values())) / 1.6
    right = max(ridge * 8, *(x for x, _ in points.values())) * 1.6
    low = min(tensor / 8, *(y for _, y in points.values())) / 1.6
    drawing = Drawing(name, (460, 330), (58, 10, 8, 42))
    axes = drawing.axes
    drawing.logarithmic((left, right), (low, tensor * 1.7))
    axes.set_xlabel("FLOP per byte of HBM traffic, by the IO model")
    axes.set_ylabel("TFLOP/s")
    axes.plot([left, ridge, right], [left * hbm / 1e12, tensor, tensor], color=colour("ink"), linewidth=1.4)
    for share in range(101):  # of the way along the roof
        x = left * (right / left) ** (share / 100)
        drawing.avoid(x, min(tensor, x * hbm / 1e12), 2)
    for case, (x, y) in points.items():
        drawing.avoid(x, y)
        dot = axes.plot(x, y, **mark(case.bound, known), clip_on=False)[0]
        drawing.say(dot, f"{case}: {decimal(y)} TFLOP/s at {decimal(x)} FLOP/B; bound: {case.bound}")
    drawing.label(right / 1.1, tensor, f"tensor cores, {tensor:,.0f} TFLOP/s")
    middle = (max(left, low * 1e12 / hbm) * ridge) ** 0.5
    drawing.label(middle, middle * hbm / 1e12, f"HBM, {hbm / 1e12:.3g} TB/s")
    several = len({case.spec for case in cases}) > 1
    for own in _series(cases):
        if len(own) > 1:
            axes.plot(*zip(*(points[case] for case in own), strict=True), color=colour("line"), zorder=1.5)
        drawing.label(*points[own[-1]], _words(own) + (f", {own[-1].spec}" if several else ""))
    return drawing.svg()


def _point(case: Entry) -> Point:
    return case.flops / case.hbm_bytes, case.tflops(OURS)


def _series(cases: Sequence[Entry]) -> list[list[Entry]]:
    """The papers' cases that differ in length only together, shortest first; any other by itself."""
    found: dict[object, list[Entry]] = {}
    for case in cases:
        found.setdefault(case.kind if case.is_paper else case.number, []).append(case)
    return list(found.values())


def _words(cases: Sequence[Entry]) -> str:
    last = cases[-1]
    if not last.is_paper:
        return last.shape_name[:40]
    ends = dict.fromkeys(length(case.shape["seqlen_q"]) for case in (cases[0], last))
    return f"{last.mask}, {' to '.join(ends)}"
