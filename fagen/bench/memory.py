"""Peak memory of a forward and its backward against the sequence length: `python -m fagen.bench.memory FILE`.

One sequence of 16 heads of 128 columns, bf16, without a mask: standard attention and the generations, on
the current GPU, until one no longer fits. FILE takes JSON, which docs/figures/memory.py draws.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from statistics import linear_regression

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from fagen.bench import passes
from fagen.bench.allocated import CudaAllocator
from fagen.bench.expected import random_inputs
from fagen.bench.generations import SPEC_FILES
from fagen.bench.machine import arch_of_device, machine
from fagen.bench.standard import standard_attention
from fagen.errors import ArgumentError, FagenError
from fagen.files import write_text
from fagen.ops.load import load
from fagen.paths import SPECS
from fagen.plan.launch import Shape
from fagen.spec.model import Problem

SEQLENS = tuple(2**n for n in range(8, 17))
HEADS, HEAD_DIM = 16, 128
PROBLEM = {"dtype": "bf16", "head_dim": HEAD_DIM, "layout": "bhsd", "mask": "none"}
TAIL = 4  # longest lengths that the slope is fitted to: at short ones what is linear hides what is quadratic

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
Curve = dict[int, int]  # peak bytes by length


def contenders() -> dict[str, Attention]:
    """Standard attention and the ops of SPEC_FILES."""
    overrides = {f"problem.{key}": value for key, value in PROBLEM.items()}
    ops = {name: load(SPECS / file, overrides) for name, file in SPEC_FILES.items()}
    return {"standard": partial(standard_attention, causal=False), **ops}


def peak(attention: Attention, seqlen: int) -> int:
    """Most bytes that a forward and its backward have allocated beside q, k and v on the current GPU.

    Outputs and gradients are among them. Raises OutOfMemoryError where it does not fit, ArgumentError where a
    workspace does not.
    """
    shape = Shape(1, seqlen, seqlen, HEADS, HEADS)
    inputs = random_inputs(Problem.model_validate(PROBLEM), shape, seed=0, device="cuda")
    allocator = CudaAllocator()
    before = allocator.allocated()
    allocator.reset_peak()
    passes.backward(lambda: attention(*inputs), inputs, torch.ones_like(inputs[0]))()
    return allocator.peak() - before


def curve(measure: Callable[[int], int], seqlens: Iterable[int]) -> Curve:
    """`measure` at each length, until one does not fit."""
    found: Curve = {}
    for seqlen in seqlens:
        try:
            found[seqlen] = measure(seqlen)
        except (torch.OutOfMemoryError, ArgumentError):
            break
        finally:
            torch.cuda.empty_cache()
    return found


def slope(points: Curve) -> float:
    """The power of the length that peak memory grows with over its TAIL longest lengths, by least squares."""
    tail = sorted(points.items())[-TAIL:]
    logarithms = ([math.log(value) for value in column] for column in zip(*tail, strict=True))
    return linear_regression(*logarithms).slope


def to_json(curves: Mapping[str, Curve], machine: Mapping[str, str]) -> dict[str, object]:
    """All curves with their slopes, and the machine that they were measured on."""
    return {
        "machine": dict(machine),
        "heads": HEADS,
        "head_dim": HEAD_DIM,
        "peak_bytes": {name: {str(n): size for n, size in points.items()} for name, points in curves.items()},
        "slope": {name: round(slope(points), 3) for name, points in curves.items()},
    }


def table(curves: Mapping[str, Curve]) -> Table:
    """Peak MiB by length, the slope last."""
    made = Table("S", title="Peak MiB beside q, k, v; forward and backward", box=None, pad_edge=False)
    for name in curves:
        made.add_column(name, justify="right")
    for n in sorted(set().union(*curves.values())):
        cells = (points.get(n) for points in curves.values())
        made.add_row(str(n), *("-" if size is None else f"{size / 2**20:,.1f}" for size in cells))
    made.add_row("grows with S^", *(f"{slope(points):.2f}" for points in curves.values()))
    return made


def main() -> None:
    """Measure all contenders, print the table and write the file named on the command line."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m fagen.bench.memory FILE")
    file = Path(sys.argv[1])
    if not file.parent.is_dir():
        sys.exit(f"error: {file}: there is no directory {file.parent}")
    try:
        arch_of_device(0)
        curves: dict[str, Curve] = {}
        for name, attention in contenders().items():
            peak(attention, SEQLENS[0])  # builds, and has libraries take what they keep
            curves[name] = curve(partial(peak, attention), SEQLENS)
    except FagenError as error:
        sys.exit(f"error: {error}")
    Console(width=160).print(table(curves))
    write_text(file, json.dumps(to_json(curves, machine()), indent=2) + "\n")


if __name__ == "__main__":
    main()
