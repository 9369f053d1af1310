"""`fagen plan`: what the planner decided for a spec, and what the models say about it."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from fagen.cli.options import ArchOption, SetOption, ShapeOption, SpecArgument, overrides
from fagen.plan import explain
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

PIPE_COLUMNS = 160  # where the output is no terminal that says how wide it is


def plan_command(
    spec: SpecArgument,
    shape: ShapeOption = explain.DEFAULT_SHAPE,
    settings: SetOption = None,
    arch: ArchOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show the plan of a spec: schedule, budgets, memory map, engines, launch, traffic."""
    planned = plan(load_spec(spec, overrides(settings)), arch)
    if as_json:
        typer.echo(json.dumps(explain.to_json(planned, shape), indent=2))
        return
    console = Console()
    if not console.is_terminal:
        console.width = PIPE_COLUMNS
    console.print(explain.to_tables(planned, shape))
