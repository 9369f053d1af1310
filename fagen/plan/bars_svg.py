"""Amounts as bars: the terms of a budget against its limit, and alternatives beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle

from fagen.page.page import SERIES
from fagen.plan.svg import HUES, SIZE, SMALL, WIDTH, drawing, line, lines_of, rect, text, width_of

BAR = 22  # height, px
ROW = 20  # of a legend's line
GAP = 16


@dataclass(frozen=True)
class Part:
    """A part of a sum; `how` says where the number comes from."""

    name: str
    value: float
    how: str = ""


@dataclass(frozen=True)
class Bar:
    """One of several amounts; `says` is its number in words."""

    label: str
    value: float
    says: str
    hue: str = SERIES[9]


def stacked(title: str, parts: Sequence[Part], limit: float, unit: str) -> str:
    """Parts side by side against a limit, and a legend; what exceeds the limit is framed."""
    used = sum(part.value for part in parts)
    scale = WIDTH / max(used, limit, 1)
    hues = _hues([part.name for part in parts])
    starts = [0.0, *accumulate(part.value for part in parts)]
    free = f", {limit - used:,.0f} free" if used <= limit else f", {used - limit:,.0f} too many"
    drawn = [
        text(0, 14, title, "strong"),
        text(WIDTH, 14, f"{used:,.0f} of {limit:,.0f} {unit}{free}", "", "end"),
        rect(0.5, 24, limit * scale - 1, BAR, "free"),
    ]
    for part, start, hue in zip(parts, starts, hues, strict=False):
        drawn.append(
            rect(
                start * scale,
                24,
                part.value * scale,
                BAR,
                "part cell",
                hue,
                f"{part.name}: {part.value:,.0f} {unit}",
            )
        )
    if used > limit:
        drawn.append(rect(limit * scale, 23, (used - limit) * scale - 1, BAR + 2, "over"))
    y = 24 + BAR + GAP
    widest = max((width_of(part.name) for part in parts), default=0)
    number = min(widest, 520) + 120
    for part, hue in zip(parts, hues, strict=True):
        names = lines_of(part.name, number - 110)
        how = lines_of(part.how, WIDTH - number - 20, SMALL)
        drawn += [
            rect(0, y, 12, 12, "", hue),
            *(text(20, y + 11 + ROW * i, words) for i, words in enumerate(names)),
            text(number, y + 11, f"{part.value:,.0f}", "", "end"),
            *(text(number + 16, y + 11 + ROW * i, words, "quiet") for i, words in enumerate(how)),
        ]
        y += ROW * max(len(names), len(how))
    return drawing(title, y + 18, drawn)


def side_by_side(title: str, bars: Sequence[Bar]) -> str:
    """Alternatives on one scale, from the left."""
    left = max((width_of(bar.label) for bar in bars), default=0) + 20
    right = max((width_of(bar.says) for bar in bars), default=0) + 24
    scale = (WIDTH - left - right) / (max((bar.value for bar in bars), default=0) or 1)
    drawn = []
    for i, bar in enumerate(bars):
        y = 4 + (BAR + 8) * i
        length = max(bar.value * scale, 1)
        drawn += [
            text(left - 10, y + BAR / 2 + SIZE / 3, bar.label, "", "end"),
            rect(left, y, length, BAR, "bar", bar.hue, f"{bar.label}: {bar.says}"),
            text(left + length + 8, y + BAR / 2 + SIZE / 3, bar.says),
        ]
    bottom = 4 + (BAR + 8) * len(bars)
    drawn.append(line(((left, 0), (left, bottom))))
    return drawing(title, bottom + 4, drawn)


def _hues(names: Sequence[str]) -> list[str]:
    """The colour of the tensor that a name begins with, or another one; none twice while there are enough."""
    hues: list[str] = []
    for name in names:
        hue = HUES.get(name.split()[0].rstrip(",").lower())
        hues.append(hue if hue and hue not in hues else "")
    others = cycle([hue for hue in SERIES if hue not in hues])
    return [hue or next(others) for hue in hues]
