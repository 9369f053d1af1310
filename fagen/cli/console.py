"""Where tables go."""

from __future__ import annotations

from rich.console import Console

PIPE_COLUMNS = 160  # where the output is no terminal that says how wide it is


def table_console() -> Console:
    """stdout, wide enough for a table."""
    console = Console()
    if not console.is_terminal:
        console.width = PIPE_COLUMNS
    return console
