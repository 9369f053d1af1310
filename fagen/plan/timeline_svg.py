"""A timeline: a row for each role and engine, and the time in cycles and microseconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, takewhile

from fagen.page.page import SERIES
from fagen.plan.svg import HUES, WIDTH, drawing, line, rect, text, width_of
from fagen.plan.timeline import Timeline
from fagen.plan.timeline_roles import ENGINES, STALL, Event

LEFT, ROW, BAR, TOP = 110, 26, 20, 52
SPAN = WIDTH - LEFT - 24  # px of the steady state
TICKS = 10  # at most

NAMES = {
    "Q": "load Q",
    "K": "load K",
    "V": "load V",
    "S": "S = Q K'",
    "softmax": "softmax",
    "PV": "O += P V",
    "O": "rescale or store O",
    STALL: "wait",
}
COLOURS = {
    "Q": HUES["q"],
    "K": HUES["k"],
    "V": HUES["v"],
    "S": SERIES[0],
    "softmax": SERIES[5],
    "PV": SERIES[7],
    "O": HUES["o"],
    STALL: "var(--line)",
}


def render(shown: Timeline, title: str) -> str:
    """The steady state of a timeline: two work items, in cycles and microseconds."""
    rows = [
        *((role, [e for e in shown.events if e.role == role and e.engine is None]) for role in shown.roles),
        *((engine, _joined([e for e in shown.events if e.engine == engine])) for engine in ENGINES),
    ]
    bottom = TOP + ROW * len(rows)
    parts = [
        *_legend(),
        *_axis(shown, bottom),
        *(part for i, row in enumerate(rows) for part in _row(shown, TOP + ROW * i, *row)),
    ]
    return drawing(title, bottom + 44, parts)


def _row(shown: Timeline, top: int, label: str, events: list[Event]) -> list[str]:
    parts = [text(0, top + 14, label)]
    for event in events:
        left, right = (_x(shown, min(max(t, shown.start), shown.end)) for t in (event.start, event.end))
        if left < right:
            by = f" for {event.role}" if event.engine else ""
            says = f"{NAMES[event.what]}{by}, tile {event.tile}: {event.end - event.start:,.0f} cycles"
            parts.append(rect(left, top, right - left, BAR, event.what, COLOURS[event.what], says))
    return parts


def _joined(events: list[Event]) -> list[Event]:
    """Jobs that follow each other for the same role, tile and purpose as one: the slices of a softmax."""
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        if last and last == replace(event, start=last.start, end=event.start):
            joined[-1] = replace(event, start=last.start)
        else:
            joined.append(event)
    return joined


def _legend() -> list[str]:
    parts, x = [], float(LEFT)
    for what, name in NAMES.items():
        parts += [rect(x, 8, 12, 12, "", COLOURS[what]), text(x + 18, 18, name)]
        x += 42 + width_of(name) * 0.85
    return parts


def _axis(shown: Timeline, bottom: int) -> list[str]:
    """Ticks at round numbers of cycles from the start; a line, and a word, where a work item ends."""
    span = shown.end - shown.start
    step = next(size for size in _round_numbers() if span / size <= TICKS)
    parts = [text(0, bottom + 20, "cycles", "quiet"), text(0, bottom + 36, "us", "quiet")]
    for cycles in takewhile(lambda cycles: cycles <= span, count(0, step)):
        x, us = _x(shown, shown.start + cycles), cycles / shown.kernel.clock_hz * 1e6
        parts += [
            line(((x, bottom), (x, bottom + 5))),
            text(x, bottom + 20, f"{cycles:,}", "quiet", "middle"),
            text(x, bottom + 36, f"{us:.2f}", "quiet", "middle"),
        ]
    for end in shown.ends:
        if shown.start < end <= shown.end:
            x = _x(shown, end)
            parts += [
                line(((x, TOP - 10), (x, bottom)), "arrow dashed"),
                text(x - 5, TOP - 8, "work item ends", "quiet", "end"),
            ]
    return parts


def _round_numbers() -> Iterator[int]:
    return (digit * 10**power for power in count() for digit in (1, 2, 5))


def _x(shown: Timeline, cycles: float) -> float:
    return LEFT + SPAN * (cycles - shown.start) / (shown.end - shown.start)
