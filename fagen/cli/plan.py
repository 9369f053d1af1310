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
    in_a_directory,
    overrides,
)
from fagen.files import write_text
from fagen.plan import explain, page, timeline_svg, timeline_text
from fagen.plan.planner import plans
from fagen.plan.svg import standalone
from fagen.plan.v3_time import typical_timeline
from fagen.spec.load import load_spec


def plan_command(
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="SPEC", help="Spec file (YAML); none with --calibrate.", show_default=False),
    ] = None,
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
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            callback=in_a_directory,
            help="Write a page of pictures and all tables there instead.",
            show_default=False,
        ),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Fit the model behind predicted times to all that `fagen tune` has measured."
        ),
    ] = False,
) -> None:
    """Show the plan of each pass: schedule, budgets, memory, engines, launch, traffic; or the timeline."""
    if calibrate:
        if spec or settings or arch or as_json or timeline or svg or html or shape != explain.DEFAULT_SHAPE:
            raise typer.BadParameter("--calibrate: allowed only by itself, without SPEC")
        from fagen.cli.calibrate import calibrate_all

        calibrate_all(table_console())
        return
    if spec is None:
        raise typer.BadParameter("SPEC: is missing; allowed to be only with --calibrate")
    if timeline and as_json:
        raise typer.BadParameter("--json: allowed only without --timeline")
    if svg and not timeline:
        raise typer.BadParameter("--svg: allowed only with --timeline")
    if html and (timeline or as_json):
        raise typer.BadParameter("--html: allowed only without --timeline and --json")
    planned = plans(load_spec(spec, overrides(settings)), arch)
    if timeline:
        forward = planned[0]
        typer.echo(timeline_text.report(forward, shape))
        if svg:
            title = f"{forward.spec.name} on one SM of {forward.device.name}, B,Sq,Sk,Hq,Hkv = {shape}"
            drawn = timeline_svg.render(typical_timeline(forward, shape), title)
            write_text(svg, standalone(drawn, title))
    elif html:
        write_text(html, page.render(planned, shape))
        typer.echo(f"wrote {html}")
    elif as_json:
        typer.echo(json.dumps({one.direction: explain.to_json(one, shape) for one in planned}, indent=2))
    else:
        for one in planned:
            table_console().print(f"[bold]The {one.direction}[/bold]\n", explain.to_tables(one, shape))
