"""A timeline as one self-contained SVG: a row for each role and engine, light or dark as its viewer is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from html import escape
from itertools import count, takewhile

from fagen.plan.timeline import ENGINES, STALL, Event, Timeline

LEFT, WIDTH, ROW, BAR, TOP = 110, 1400, 26, 20, 44
TICKS = 12  # at most

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
STYLE = """
svg { font: 12px system-ui, sans-serif; background: #fff; --ink: #1b1f24; --line: #c8ccd2;
  --Q: #7a5195; --K: #2f7ebc; --V: #4fb3bf; --S: #d1495b; --softmax: #e0a030; --PV: #8c2f39; --O: #5a8f3c;
  --stall: #e3e5e8; }
@media (prefers-color-scheme: dark) { svg { background: #14171b; --ink: #e6e8eb; --line: #3a4048;
  --Q: #b48ad0; --K: #5aa5e0; --V: #6fd0db; --S: #f0707f; --softmax: #f0bc5a; --PV: #c25a66; --O: #8cc46c;
  --stall: #2a2f36; } }
text { fill: var(--ink); } line { stroke: var(--line); }
"""


def render(shown: Timeline, title: str) -> str:
    """The steady state of a timeline: two work items, in cycles and microseconds."""
    rows = [
        *((role, [e for e in shown.events if e.role == role and e.engine is None]) for role in shown.roles),
        *((engine, _joined([e for e in shown.events if e.engine == engine])) for engine in ENGINES),
    ]
    bottom = TOP + ROW * len(rows)
    colours = "".join(f".{what} {{ fill: var(--{what}); }}\n" for what in NAMES)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {bottom + 50}">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}{colours}</style>",
            f'<text x="8" y="18">{escape(title)}</text>',
            *_legend(),
            *_axis(shown, bottom),
            *(part for i, row in enumerate(rows) for part in _row(shown, TOP + ROW * i, *row)),
            "</svg>\n",
        )
    )


def _row(shown: Timeline, top: int, label: str, events: list[Event]) -> list[str]:
    parts = [f'<text x="8" y="{top + 14}">{label}</text>']
    for event in events:
        left, right = (_x(shown, min(max(t, shown.start), shown.end)) for t in (event.start, event.end))
        if left < right:
            by = f" for {event.role}" if event.engine else ""
            says = f"{NAMES[event.what]}{by}, tile {event.tile}: {event.end - event.start:,.0f} cycles"
            parts.append(
                f'<rect class="{event.what}" x="{left:.1f}" y="{top}" width="{right - left:.1f}" '
                f'height="{BAR}"><title>{escape(says)}</title></rect>'
            )
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
    step = 150
    return [
        part
        for i, (what, name) in enumerate(NAMES.items())
        for part in (
            f'<rect class="{what}" x="{LEFT + step * i}" y="26" width="10" height="10"/>',
            f'<text x="{LEFT + step * i + 15}" y="35">{escape(name)}</text>',
        )
    ]


def _axis(shown: Timeline, bottom: int) -> list[str]:
    """Ticks at round numbers of cycles from the start; a higher line where a work item ends."""
    span = shown.end - shown.start
    step = next(size for size in _round_numbers() if span / size <= TICKS)
    parts = []
    for cycles in takewhile(lambda cycles: cycles <= span, count(0, step)):
        x, us = _x(shown, shown.start + cycles), cycles / shown.kernel.clock_hz * 1e6
        parts += [
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}"/>',
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{cycles:,}</text>',
            f'<text x="{x:.1f}" y="{bottom + 33}" text-anchor="middle">{us:.2f} us</text>',
        ]
    ends = (_x(shown, end) for end in shown.ends if shown.start <= end)
    return [
        f'<text x="8" y="{bottom + 18}">cycles</text>',
        *parts,
        *(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{bottom}"/>' for x in ends),
    ]


def _round_numbers() -> Iterator[int]:
    return (digit * 10**power for power in count() for digit in (1, 2, 5))


def _x(shown: Timeline, cycles: float) -> float:
    return LEFT + WIDTH * (cycles - shown.start) / (shown.end - shown.start)
