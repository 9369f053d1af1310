"""`fagen plan`: what the planner decided for a spec, and what the models say about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fagen.cli.console import table_console
from fagen.cli.options import (
    ArchOption,
    SetOption,
    ShapeOption,
    SpecArgument,
    in_a_directory,
    overrides,
)
from fagen.plan import explain, timeline_svg, timeline_text
from fagen.plan.planner import plans
from fagen.plan.predict import typical_timeline
from fagen.spec.load import load_spec


def plan_command(
    spec: SpecArgument,
    shape: ShapeOption = explain.DEFAULT_SHAPE,
    settings: SetOption = None,
    arch: ArchOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Print who does what when on one SM in the forward (v3).")
    ] = False,
    svg: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            callback=in_a_directory,
            help="With --timeline: also draw it there.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the plan of each pass: schedule, budgets, memory, engines, launch, traffic; or the timeline."""
    if timeline and as_json:
        raise typer.BadParameter("--json: allowed only without --timeline")
    if svg and not timeline:
        raise typer.BadParameter("--svg: allowed only with --timeline")
    planned = plans(load_spec(spec, overrides(settings)), arch)
    if timeline:
        forward = planned[0]
        typer.echo(timeline_text.report(forward, shape))
        if svg:
            title = f"{forward.spec.name} on one SM of {forward.device.name}, B,Sq,Sk,Hq,Hkv = {shape}"
            svg.write_text(timeline_svg.render(typical_timeline(forward, shape), title))
    elif as_json:
        typer.echo(json.dumps({one.direction: explain.to_json(one, shape) for one in planned}, indent=2))
    else:
        for one in planned:
            table_console().print(f"[bold]The {one.direction}[/bold]\n", explain.to_tables(one, shape))
