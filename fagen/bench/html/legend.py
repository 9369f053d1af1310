"""What stands for whom in a report: a colour for each contender, marks for points; the legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from fagen.page.figure import PAINTS, colour
from fagen.page.page import SERIES

PLAIN = 5  # series that colour alone tells apart, for the colour-blind too; further ones are hatched
MARKS = {  # matplotlib's name and the same drawn in a box of 12 x 12
    "o": "M6 2a4 4 0 1 0 .01 0Z",
    "s": "M2.5 2.5h7v7h-7Z",
    "D": "M6 1L11 6L6 11L1 6Z",
    "^": "M6 1.5L10.5 10H1.5Z",
    "v": "M6 10.5L1.5 2H10.5Z",
    "P": "M4.5 1.5h3v3h3v3h-3v3h-3v-3h-3v-3h3Z",
    "X": "M3 1L6 4L9 1L11 3L8 6L11 9L9 11L6 8L3 11L1 9L4 6L1 3Z",
}
FIRST_MARK = 5  # the series whose colour the first mark has; those before belong to contenders


def line(series: int) -> str:
    """The colour of a series, for matplotlib."""
    return colour(f"s{series % len(SERIES)}")


def bar(series: int) -> str:
    """The colour or hatch of a series' bars, for matplotlib."""
    return colour(_paint(series))


def of_bars(names: Sequence[str]) -> str:
    """Markup of the legend of contenders whose bars are shown."""
    return _legend((_swatch(_paint(series)), name) for series, name in enumerate(names))


def of_lines(names: Sequence[str]) -> str:
    """Markup of the legend of contenders whose lines are shown."""
    return _legend((_swatch(f"s{series % len(SERIES)}"), name) for series, name in enumerate(names))


def _swatch(paint: str) -> str:
    return (
        '<svg class="swatch" width="14" height="12">'
        f'<rect width="14" height="12" fill="{PAINTS[paint]}"/></svg>'
    )


def mark(kind: str, kinds: Sequence[str]) -> dict[str, Any]:
    """How matplotlib draws a point of one of some kinds: a bound of cases, a family of kernels."""
    number = kinds.index(kind)
    return {
        "color": line(FIRST_MARK + number),
        "marker": list(MARKS)[number % len(MARKS)],
        "markersize": 6.5,
        "markeredgewidth": 0,
        "linestyle": "none",
    }


def of_marks(kinds: Sequence[str], what: str) -> str:
    """Markup of the legend of marks; `what` says what the kinds are."""
    return _legend((_mark(number), f"{what}: {kind}") for number, kind in enumerate(kinds))


def _paint(series: int) -> str:
    return f"{'s' if series < PLAIN else 'hatch'}{series % len(SERIES)}"


def _mark(number: int) -> str:
    path = list(MARKS.values())[number % len(MARKS)]
    fill = SERIES[(FIRST_MARK + number) % len(SERIES)]
    return f'<svg class="swatch" width="12" height="12"><path d="{path}" fill="{fill}"/></svg>'


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    return '<ul class="legend">' + "".join(f"<li>{key}{escape(name)}</li>" for key, name in entries) + "</ul>"
