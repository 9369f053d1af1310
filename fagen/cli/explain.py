"""`fagen explain`: generations of attention side by side, and why each is faster than the one before."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from fagen.cli.console import table_console
from fagen.cli.options import ShapeOption
from fagen.hw.device import DEVICES
from fagen.plan.generations import FAMILIES, PASSES, Generation, PassCost, generations, why
from fagen.plan.launch import Shape

SHAPE = Shape(batch=8, seqlen_q=2048, seqlen_k=2048, heads_q=16, heads_kv=16)
NOTES = (
    "FLOP: of all blocks that the mask leaves, whole; how the others are counted: fagen/plan/generations.py",
    "HBM: bytes over the memory bus, after L2; L2: bytes that the SMs ask of it; bounds: each engine alone",
    "balance: work of the mean SM over that of the SM with the most CTAs",
)


def explain_command(
    families: Annotated[
        list[str], typer.Argument(metavar="v1|v2|v3 ...", help="Generations beside standard attention.")
    ],
    shape: ShapeOption = SHAPE,
    device: Annotated[str, typer.Option(help=f"One of {', '.join(DEVICES)}.")] = "h200",
    head_dim: Annotated[int, typer.Option(min=8, max=256, help="Columns of q, k and v.")] = 128,
    mask: Annotated[Literal["none", "causal"], typer.Option(help="The mask.")] = "causal",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Compare generations on a shape: HBM traffic, FLOP, occupancy, memory, bounds; why each is faster.

    Each has the planner's schedule for the device, bf16.
    """
    if unknown := sorted(set(families) - set(FAMILIES)):
        raise typer.BadParameter(f"{', '.join(unknown)}: allowed: {', '.join(FAMILIES)}")
    if device not in DEVICES:
        raise typer.BadParameter(f"--device: is {device}; allowed: {', '.join(DEVICES)}")
    if head_dim % 8:
        raise typer.BadParameter(f"--head-dim: is {head_dim}; allowed: multiples of 8")
    made = generations(families, shape, head_dim, mask, device)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in made], indent=2))
        return
    console = table_console()
    for index, name in enumerate(PASSES):
        title = f"{name}, B,Sq,Sk,Hq,Hkv = {shape}, head_dim {head_dim}, mask {mask}, {device}"
        console.print(_table(title, made, index))
    for note in NOTES:
        console.print(f"  {note}", style="dim")
    console.print()
    for before, now in pairwise(made):
        console.print(why(before, now))


def _table(title: str, made: Sequence[Generation], index: int) -> Table:
    table = Table("", title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for one in made:
        table.add_column(one.name, justify="right")
    costs = [one.passes[index] for one in made]
    for label, cell in _ROWS.items():
        table.add_row(label, *(_text(cell(cost)) for cost in costs))
    for engine in dict.fromkeys(engine for cost in costs for engine in cost.seconds):
        microseconds = [cost.seconds[engine] * 1e6 if engine in cost.seconds else None for cost in costs]
        table.add_row(f"bound by {engine}, us", *map(_text, microseconds))
    return table


_ROWS: dict[str, Callable[[PassCost], float | str | None]] = {
    "HBM, MiB": lambda cost: cost.hbm_bytes / 2**20,
    "asked of L2, MiB": lambda cost: None if cost.l2_bytes is None else cost.l2_bytes / 2**20,
    "matmul, GFLOP": lambda cost: cost.matmul_flops / 1e9,
    "other, GFLOP": lambda cost: cost.other_flops / 1e9,
    "exponentials, G": lambda cost: cost.exponentials / 1e9,
    "matmul FLOP per HBM byte": lambda cost: cost.intensity,
    "memory beside the tensors, MiB": lambda cost: sum(cost.memory.values()) / 2**20,
    "which is": lambda cost: "; ".join(cost.memory),
    "CTAs": lambda cost: cost.occupancy and cost.occupancy.ctas,
    "CTAs at a time": lambda cost: cost.occupancy and cost.occupancy.ctas_at_a_time,
    "waves": lambda cost: cost.occupancy and cost.occupancy.waves,
    "warps per SM": lambda cost: cost.occupancy and cost.occupancy.warps_per_sm,
    "balance": lambda cost: cost.occupancy and cost.occupancy.balance,
}


def _text(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,.0f}" if isinstance(value, int) or value >= 1000 else f"{value:.3g}"
