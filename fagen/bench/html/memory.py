"""Peak memory of all contenders against sequence length, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log2

from fagen.bench.html.entries import Entry, by_kind, caption
from fagen.bench.html.legend import line
from fagen.bench.html.plots import Drawing, Panel, length
from fagen.page.figure import colour

TICKS = 7  # at most
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def panels(cases: Sequence[Entry], names: Sequence[str]) -> list[Panel]:
    """A panel for each mode and head size of the papers' cases with several lengths; of masks the larger."""
    found: dict[tuple[str, str, str], list[Entry]] = {}
    for (mode, d, _, rest), own in by_kind(case for case in cases if case.is_paper).items():
        found.setdefault((mode, d, rest), []).extend(own)
    drawn = ((kind, _draw(f"memory{i}", own, names)) for i, (kind, own) in enumerate(found.items()))
    return [Panel(caption(mode, d), svg, rest) for (mode, d, rest), svg in drawn if svg]


def _draw(name: str, cases: Sequence[Entry], names: Sequence[str]) -> str:
    curves = {series: curve for series, each in enumerate(names) if (curve := _curve(cases, each))}
    points = [point for curve in curves.values() for point in curve.items()]
    lengths = sorted({tokens for tokens, _ in points})
    if len(lengths) < 2:
        return ""
    drawing = Drawing(name, (460, 290), (74, 14, 8, 42))
    axes = drawing.axes
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlim(lengths[0] / 1.15, lengths[-1] * 1.15)
    axes.set_xticks(lengths, [length(tokens) for tokens in lengths])
    sizes = [log2(size) for _, size in points]
    low, high = floor(min(sizes) - 0.5), ceil(max(sizes) + 0.5)
    step = max(1, ceil((high - low) / TICKS))
    ticks = [2.0**power for power in range(low, high + 1, step)]
    axes.set_ylim(2.0**low, 2.0**high)
    axes.set_yticks(ticks, [_bytes(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("sequence length (tokens, k = 1024)")
    axes.set_ylabel("peak memory")
    # Where curves coincide, the first lies on top, in the rings of the others.
    for rank, (series, curve) in reversed(list(enumerate(curves.items()))):
        drawn = axes.plot(
            list(curve),
            list(curve.values()),
            "o-",
            color=line(series),
            linewidth=1.5 + 0.35 * rank,
            markersize=6 + 2.2 * rank,
            markeredgecolor=colour("page"),
            markeredgewidth=0.7,
            clip_on=False,
        )[0]
        values = ", ".join(f"{_bytes(size)} at {length(tokens)}" for tokens, size in curve.items())
        drawing.say(drawn, f"{names[series]}: {values}")
    return drawing.svg()


def _curve(cases: Sequence[Entry], name: str) -> dict[int, int]:
    curve: dict[int, int] = {}
    for case in cases:
        found = case.contenders.get(name)
        if found and found.peak_bytes:
            tokens = case.shape["seqlen_q"]
            curve[tokens] = max(curve.get(tokens, 0), found.peak_bytes)
    return dict(sorted(curve.items()))


def _bytes(size: float) -> str:
    power = min(len(UNITS) - 1, int(log2(max(1, size)) // 10))
    return f"{size / 1024**power:.3g} {UNITS[power]}"
