"""`fagen plan`: what the planner decided for a spec, and what the models say about it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fagen.cli.console import table_console
from fagen.cli.options import ArchOption, SetOption, ShapeOption, SpecArgument, overrides
from fagen.plan import explain
from fagen.plan.planner import plan
from fagen.spec.load import load_spec


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
    table_console().print(explain.to_tables(planned, shape))
