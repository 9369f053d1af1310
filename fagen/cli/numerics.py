"""`fagen numerics`: how accurate an 8-bit spec is, beside 16 bits and by how q, k and v are quantised."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from fagen.cli.console import table_console
from fagen.cli.device import usual_device
from fagen.cli.options import MOST_SEED, RunShapeOption, SetOption, SpecArgument, overrides
from fagen.cli.progress import track
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec

if TYPE_CHECKING:
    from fagen.bench.numerics import Row, Runner

GPU_SHAPE = Shape(2, 8192, 8192, 16, 16)
MODEL_SHAPE = Shape(1, 4096, 4096, 2, 2)
EMULATED_SHAPE = Shape(1, 128, 256, 1, 1)
EMULATOR, MODEL = "emu", "model"


def numerics_command(
    spec: SpecArgument,
    dist: Annotated[
        Literal["normal", "outliers", "shifted"],
        typer.Option(
            help="Elements of q, k and v: normal(0, 1); that + normal(0, 100) * Bernoulli(0.001), as the "
            "FlashAttention-3 paper has them; normal(1, 1)."
        ),
    ] = "outliers",
    shape: RunShapeOption = None,
    settings: SetOption = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="emu|model|N",
            help="The emulator; a model in torch of the kernels' arithmetic; or the number of a CUDA device. "
            "Left out: device 0, or the model where there is none that runs the spec's family.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the random inputs.")] = 0,
) -> None:
    """Print errors against fp64 of an 8-bit spec's forward: per tensor, head, block, with Hadamard; 16 bits.

    The reference knows q, k and v before any rounding, so that errors are of everything. Standard attention
    keeps scores and P in memory; in 8 bits it is the FlashAttention-3 paper's baseline. The exit code is 1
    where fagen's own kernels gave nothing.
    """
    import torch

    from fagen.bench.numerics import Kernels, Model, measure, ways

    loaded = load_spec(spec, overrides(settings))
    device = device or usual_device(loaded, MODEL)
    runner: Runner
    if device == MODEL:
        runner, where, usual = Model("cpu"), "a torch model of the kernels, sums in fp32", MODEL_SHAPE
    elif device == EMULATOR:
        runner, where, usual = Kernels("cpu"), f"the emulator on {platform.machine()}", EMULATED_SHAPE
    elif device.isdecimal():
        from fagen.bench.machine import arch_of_device

        arch_of_device(int(device))
        where = torch.cuda.get_device_name(int(device))
        runner, usual = Kernels(f"cuda:{device}"), GPU_SHAPE
    else:
        raise typer.BadParameter(
            f"--device: is {device}; allowed: {EMULATOR}, {MODEL}, or a CUDA device's number"
        )
    size = shape or usual
    todo = ways(loaded, runner.device)
    rows: list[Row] = []
    made = measure(loaded, size, dist, seed, runner)
    try:
        for _ in track(todo, str):
            rows.append(next(made))
    finally:
        if rows:
            typer.echo(f"{loaded.name}, {dist}, B,Sq,Sk,Hq,Hkv = {size}, by {where}")
            table_console().print(_table(rows))
    if any(row.problem and row.way.by == "fagen" for row in rows):
        raise typer.Exit(1)


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("by", "dtype", "scale", "Hadamard"):
        table.add_column(heading)
    for heading in ("RMSE", "largest error", "RMSE per tensor / this"):
        table.add_column(heading, justify="right")
    per_tensor = next((row.rmse for row in rows if row.way.by == "fagen" and row.way.scale == "tensor"), 0.0)
    for row in rows:
        way = row.way
        words = (way.by, way.dtype, way.scale, "yes" if way.hadamard else "")
        if row.problem:
            table.add_row(*words, escape(row.problem))
            continue
        share = f"{per_tensor / row.rmse:.2f}" if per_tensor and row.rmse else ""
        table.add_row(*words, f"{row.rmse:.2e}", f"{row.worst:.2e}", share)
    return table
