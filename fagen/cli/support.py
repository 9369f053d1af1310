"""`fagen support`: what runs, is emulated, compiles or is refused, where, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markdown import Markdown

from fagen.cli.console import table_console
from fagen.support import embedded, markdown, matrix


def support_command(
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    into: Annotated[
        Path | None, typer.Option(help="Put the Markdown between the markers of this page, e.g. README.md.")
    ] = None,
) -> None:
    """Print which feature runs on hardware or in the emulator, compiles, or is refused, and why."""
    table = markdown(matrix())
    if into:
        into.write_text(embedded(into.read_text(encoding="utf-8"), table), encoding="utf-8")
    elif as_markdown:
        typer.echo(table)
    else:
        table_console().print(Markdown(table))
