"""Progress bars for work that takes longer than a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

T = TypeVar("T")


def track(items: Sequence[T], label: Callable[[T], str]) -> Iterator[T]:
    """Yield `items` under a bar on stderr that names the one in work and goes away at the end."""
    with _bars() as progress:
        task = progress.add_task("", total=len(items))
        for item in items:
            progress.update(task, description=label(item))
            yield item
            progress.advance(task)


class Stages:
    """A bar on stderr for one stage after another, of steps that are done elsewhere; notes stay."""

    def __init__(self) -> None:
        self._progress = _bars()
        self._task = self._progress.add_task("", total=None)
        self._name, self._steps = "", 0

    def stage(self, name: str, steps: int) -> None:
        """Begin a stage of so many steps."""
        self._name, self._steps = name, steps
        self._progress.reset(self._task, total=steps, description=name)

    def more(self, steps: int) -> None:
        """Make the stage longer by so many steps."""
        self._steps += steps
        self._progress.update(self._task, total=self._steps)

    def step(self, what: str, steps: int = 1) -> None:
        """Count steps, and name the last."""
        self._progress.update(self._task, advance=steps, description=escape(f"{self._name} {what}"))

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._progress.console.print(text, markup=False, highlight=False)

    def __enter__(self) -> Stages:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _bars() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
