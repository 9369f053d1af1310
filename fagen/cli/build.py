"""`fagen build`: from spec files to machine code, with what each kernel takes."""

from __future__ import annotations

import typer
from rich.table import Table

from fagen.cli.console import table_console
from fagen.cli.options import GENERATED, ArchOption, OutOption, SetOption, SpecsArgument, overrides
from fagen.cli.progress import track
from fagen.compile.artifact import Artifact
from fagen.compile.nvrtc import compile_sources
from fagen.emit import generate
from fagen.emit.render import render
from fagen.plan.kernels import KernelPlan, kernels
from fagen.plan.planner import plans
from fagen.spec.load import load_spec

Built = tuple[KernelPlan, Artifact]


def build_command(
    specs: SpecsArgument, arch: ArchOption = None, settings: SetOption = None, out: OutOption = GENERATED
) -> None:
    """Write generated/<name>/ and compile it to machine code; needs no GPU and no driver.

    With --arch, compile only: what is written is always for the spec's own arch.
    """
    loaded = [load_spec(path, overrides(settings)) for path in specs]
    built: list[Built] = []
    for spec in track(loaded, lambda spec: spec.name):
        planned = [kernels(one) for one in plans(spec, arch)]
        if arch is None:
            generate.write(spec, out)
        for own in planned:
            built += zip(own, compile_sources([render(kernel) for kernel in own]), strict=True)
    table_console().print(resource_table(built))
    for kernel, artifact in built:
        name = f"{artifact.name} {kernel.name}"
        written = f"{out / artifact.name / kernel.name}.cu, " if arch is None else ""
        typer.echo(f"{name}: {written}{artifact.path or 'machine code in memory only'}")
        for warning in artifact.resources.warnings:
            typer.echo(f"{name}: warning: {warning}", err=True)


def resource_table(built: list[Built]) -> Table:
    """Registers, spills, stack and shared memory of each kernel, and how long NVRTC took."""
    table = Table(box=None, pad_edge=False)
    words = ("spec", "kernel", "arch", "cached")
    numbers = ("registers", "spill B", "stack B", "smem B", "threads", "seconds")
    for heading in (*words[:3], *numbers, words[3]):
        justify = "left" if heading in words else "right"
        table.add_column(heading, justify=justify, overflow="fold")  # a narrow terminal loses no digit
    for kernel, artifact in built:
        used = artifact.resources
        numbers = (
            used.registers,
            used.spill_store_bytes + used.spill_load_bytes,
            used.stack_bytes,
            used.shared_bytes + kernel.smem_bytes,
            kernel.threads,
        )
        cached = "yes" if artifact.cached else "no"
        taken = map(str, numbers)
        table.add_row(artifact.name, kernel.name, artifact.arch, *taken, f"{artifact.seconds:.2f}", cached)
    return table
