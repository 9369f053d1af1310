"""A progress bar for work that takes longer than a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

T = TypeVar("T")


def track(items: Sequence[T], label: Callable[[T], str]) -> Iterator[T]:
    """Yield `items` under a bar on stderr that names the one in work and goes away at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(items))
        for item in items:
            progress.update(task, description=label(item))
            yield item
            progress.advance(task)
