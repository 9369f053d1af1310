"""Small drawings: SVG elements as text, in the colours of fagen/page, light or dark as their viewer is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from fagen.page.page import SERIES, colours

WIDTH = 1080  # of every drawing
ADVANCE = 0.58  # of an average character, in font sizes, and rather more than less
SIZE, SMALL = 13, 12  # of a text, in px
HUES = {  # of tensors and what holds them, the same in every drawing
    "q": SERIES[6],
    "k": SERIES[1],
    "v": SERIES[4],
    "o": SERIES[2],
    "out": SERIES[2],
    "do": SERIES[8],
    "dout": SERIES[8],
    "s": SERIES[0],
    "p": SERIES[5],
    "ds": SERIES[0],
    "stats": SERIES[3],
}
BARRIERS = SERIES[9]

STYLE = f"""
.drawing {{ font: {SIZE}px system-ui, sans-serif; }}
.drawing text {{ fill: var(--ink); }}
.drawing .quiet {{ fill: var(--quiet); font-size: {SMALL}px; }}
.drawing .strong {{ font-weight: 600; }}
.drawing .box {{ fill: var(--panel); stroke: var(--line); }}
.drawing .cell {{ stroke: var(--page); }}
.drawing .free {{ fill: var(--panel); stroke: var(--line); stroke-dasharray: 4 3; }}
.drawing .over {{ fill: none; stroke: var(--bad); stroke-width: 2; }}
.drawing .line {{ fill: none; stroke: var(--line); }}
.drawing .arrow {{ fill: none; stroke: var(--quiet); stroke-width: 1.5; }}
.drawing .dashed {{ stroke-dasharray: 4 3; }}
.drawing .head {{ fill: var(--quiet); }}
"""


def drawing(title: str, height: float, parts: Iterable[str]) -> str:
    """A drawing to be put into a page."""
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" width="{WIDTH}" height="{height:g}" '
            f'viewBox="0 0 {WIDTH} {height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            *parts,
            "</svg>\n",
        )
    )


def standalone(drawn: str, title: str) -> str:
    """A drawing as a file of its own, under its title, with the colours that its page would have."""
    found = re.search(r' height="([\d.]+)"', drawn)
    height = (float(found[1]) if found else 0) + 60
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" viewBox="0 0 {WIDTH + 40} {height:g}">\n'
        f"<style>{colours()}svg {{ background: var(--page); }}</style>\n"
        f"{text(20, 26, title, 'strong')}\n"
        f'<g transform="translate(20 40)">\n{drawn}</g>\n</svg>\n'
    )


def hue_of(buffer: str) -> str:
    """The colour of a buffer in shared memory."""
    return HUES.get(buffer, SERIES[7])


def text(x: float, y: float, words: str, css: str = "", anchor: str = "start") -> str:
    """Words whose baseline is at `y`."""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{_n(x)}" y="{_n(y)}"{_class(css)}{place}>{escape(words)}</text>'


def rect(
    x: float, y: float, width: float, height: float, css: str = "", fill: str = "", tip: str = ""
) -> str:
    """A rectangle; `tip` is what a viewer sees who points at it."""
    colour = f' fill="{fill}"' if fill else ""
    inside = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"{_class(css)}{colour}>'
        f"{inside}</rect>"
    )


def line(points: Iterable[tuple[float, float]], css: str = "line") -> str:
    """Straight lines from point to point."""
    return f'<path d="M{" L".join(f"{_n(x)} {_n(y)}" for x, y in points)}"{_class(css)}/>'


def arrow(points: list[tuple[float, float]], css: str = "arrow") -> list[str]:
    """Horizontal and vertical lines from point to point, a head at the last one."""
    (x0, y0), (x, y) = points[-2:]
    right, down = (x > x0) - (x < x0), (y > y0) - (y < y0)
    back_x, back_y = x - 8 * right, y - 8 * down
    corners = ((x, y), (back_x + 4 * down, back_y + 4 * right), (back_x - 4 * down, back_y - 4 * right))
    return [line([*points[:-1], (back_x, back_y)], css), line(corners, "head")]


def width_of(words: str, size: int = SIZE) -> float:
    """About the width of a text in px, and rather more than less."""
    return ADVANCE * size * len(words)


def lines_of(words: str, width: float, size: int = SIZE) -> list[str]:
    """Words in lines no wider than `width` px; what has no space to break at is cut, with an ellipsis."""
    most, lines = max(1, int(width / (ADVANCE * size))), [""]
    for word in words.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".lstrip()
    return [line if len(line) <= most else f"{line[: most - 1]}…" for line in lines]


def amount(size: int) -> str:
    """Bytes in KiB where that is exact to a tenth, e.g. "65,536 B = 64 KiB"."""
    return f"{size:,} B = {size / 1024:,.4g} KiB" if size >= 1024 else f"{size:,} B"


def _class(css: str) -> str:
    return f' class="{css}"' if css else ""


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
