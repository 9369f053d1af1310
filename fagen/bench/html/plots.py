"""What a report's plots share: a figure, words under the pointer, labels that keep clear of each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from itertools import product
from math import inf
from typing import Any

from fagen.errors import FagenError
from fagen.page.figure import SETTINGS, colour, inline

STEPS = (7, 20, 34, 52)  # px from a point to its label
SIDES: Sequence[tuple[float, float, str, str]] = (  # across and up, alignments
    (1, 0, "left", "center"),
    (-1, 0, "right", "center"),
    (0, 1, "center", "bottom"),
    (0, -1, "center", "top"),
    (0.7, 0.8, "left", "bottom"),
    (0.7, -0.8, "left", "top"),
    (-0.7, 0.8, "right", "bottom"),
    (-0.7, -0.8, "right", "top"),
)
LEADER = {"arrowstyle": "-", "color": colour("quiet"), "linewidth": 0.7, "shrinkA": 0, "shrinkB": 4}
DIGITS = ((5, (1, 2, 3, 4, 5, 6, 8)), (1000, (1, 2, 5)), (inf, (1,)))  # of ticks, by the reach of the axis


@dataclass(frozen=True)
class Panel:
    """One plot, its caption and what is said below that."""

    caption: str
    svg: str
    note: str = ""

    def __str__(self) -> str:
        """Markup."""
        note = f"<small>{escape(self.note)}</small>" if self.note else ""
        return f"<figure><figcaption>{escape(self.caption)}{note}</figcaption>{self.svg}</figure>"


def check_installed() -> None:
    """Raises FagenError where matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise FagenError("the HTML report needs matplotlib: pip install 'fagen[report]'")


@contextmanager
def settings() -> Iterator[None]:
    """What is drawn under it suits a page."""
    from matplotlib import rc_context

    with rc_context(SETTINGS):
        yield


class Drawing:
    """A figure with one pair of axes; sizes and margins (left, right, top, bottom) are in CSS pixels."""

    def __init__(self, name: str, size: tuple[int, int], margins: tuple[int, int, int, int]):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        (width, height), (left, right, top, bottom) = size, margins
        self.name = name
        self.figure = Figure((width / 72, height / 72), dpi=72)
        box = (left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height)
        self.axes = self.figure.add_axes(box)
        self.axes.tick_params(length=0)
        self.inner = width - left - right, height - top - bottom
        self._renderer = FigureCanvasAgg(self.figure).get_renderer()
        self._titles: dict[str, str] = {}
        self._points: list[Any] = []  # boxes that labels keep off
        self._labels: list[Any] = []  # boxes of labels and of what leads to them

    def logarithmic(self, across: tuple[float, float], up: tuple[float, float]) -> None:
        """Make both axes logarithmic, with these limits and ticks at round numbers."""
        from matplotlib.ticker import LogLocator, NullLocator

        self.axes.set(xscale="log", yscale="log", xlim=across, ylim=up)
        for axis, (low, high) in ((self.axes.xaxis, across), (self.axes.yaxis, up)):
            digits = next(digits for reach, digits in DIGITS if high / low <= reach)
            axis.set_major_locator(LogLocator(subs=digits, numticks=20))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(lambda value, _: f"{value:,g}")

    def say(self, artist: Any, words: str) -> None:
        """Show words while the pointer is on an artist."""
        gid = f"t{len(self._titles)}"
        artist.set_gid(gid)
        self._titles[gid] = words

    def avoid(self, x: float, y: float, radius: float = 4) -> None:
        """Keep labels off a point of the axes' data."""
        self._points.append(self._around(self.axes.transData.transform((x, y)), radius))

    def label(self, x: float, y: float, words: str) -> None:
        """Write words beside a point, or further off with a line to it; nowhere if there is no room.

        The axes' limits must be set.
        """
        inside = self.axes.get_window_extent(self._renderer).padded(2)
        at = self.axes.transData.transform((x, y))
        for step, (across, up, where, line) in product(STEPS, SIDES):
            far = step > STEPS[0]
            text = self.axes.annotate(
                words,
                (x, y),
                (across * step, up * step),
                textcoords="offset points",
                ha=where,
                va=line,
                arrowprops=LEADER if far else None,
            )
            box = self._box(text)
            way = range(6, step, 3) if far else ()
            leader = [self._around((at[0] + across * px, at[1] + up * px), 1) for px in way]
            fits = inside.contains(box.x0, box.y0) and inside.contains(box.x1, box.y1)
            free = not box.count_overlaps([*self._points, *self._labels])
            if fits and free and not any(part.count_overlaps(self._labels) for part in leader):
                self._labels += [box, *leader]
                return
            text.remove()

    def _box(self, text: Any) -> Any:
        """The box of an annotation, without the line to its point."""
        from matplotlib.text import Text

        text.update_positions(self._renderer)
        return Text.get_window_extent(text, self._renderer)

    @staticmethod
    def _around(place: Any, radius: float) -> Any:
        from matplotlib.transforms import Bbox

        x, y = place
        return Bbox.from_extents(x - radius, y - radius, x + radius, y + radius)

    def svg(self) -> str:
        """Markup."""
        return inline(self.figure, self.name, self._titles)


def length(tokens: int) -> str:
    """`512`, `16k`."""
    return f"{tokens // 1024}k" if tokens and tokens % 1024 == 0 else str(tokens)


def rate(tflops: float) -> str:
    """TFLOP/s as a bar's value: `612`, `4.7`, `0.023`."""
    return f"{tflops:.0f}" if tflops >= 9.95 else f"{tflops:.2g}"
