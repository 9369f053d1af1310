"""`fagen build`: from spec files to machine code, with what each kernel takes."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from fagen.cli.options import GENERATED, ArchOption, OutOption, SetOption, SpecsArgument, overrides
from fagen.cli.progress import track
from fagen.compile.artifact import Artifact
from fagen.compile.nvrtc import compile_source
from fagen.emit import generate
from fagen.emit.render import render
from fagen.emit.source import Source
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

Built = tuple[Source, Artifact]


def build_command(
    specs: SpecsArgument, arch: ArchOption = None, settings: SetOption = None, out: OutOption = GENERATED
) -> None:
    """Write generated/<name>/ and compile it to machine code; needs no GPU and no driver."""
    loaded = [load_spec(path, overrides(settings)) for path in specs]
    built: list[Built] = []
    for spec in track(loaded, lambda spec: spec.name):
        source = render(plan(spec, arch))
        generate.write(spec, out)
        built.append((source, compile_source(source)))
    Console().print(resource_table(built))
    for _, artifact in built:
        typer.echo(
            f"{artifact.name}: {out / artifact.name}, {artifact.path or 'machine code in memory only'}"
        )
        for warning in artifact.resources.warnings:
            typer.echo(f"{artifact.name}: warning: {warning}", err=True)


def resource_table(built: list[Built]) -> Table:
    """Registers, spills, stack and shared memory of each kernel, and how long NVRTC took."""
    table = Table("spec", "arch", box=None, pad_edge=False)
    for heading in ("registers", "spill B", "stack B", "smem B", "threads", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("cached")
    for source, artifact in built:
        used = artifact.resources
        numbers = (
            used.registers,
            used.spill_store_bytes + used.spill_load_bytes,
            used.stack_bytes,
            used.shared_bytes + source.smem_bytes,
            source.threads,
        )
        cached = "yes" if artifact.cached else "no"
        table.add_row(artifact.name, artifact.arch, *map(str, numbers), f"{artifact.seconds:.2f}", cached)
    return table
