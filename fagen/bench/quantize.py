"""`fagen.quantize_fp8` against the memory bus: `python -m fagen.bench.quantize [BATCH,S,HEADS]`, on a GPU.

Bytes of q, k and v read and written by each kind of call, per second, beside those of a copy of as many.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from fagen.bench.clock import Clock, CudaClock, interleaved
from fagen.bench.machine import arch_of_device, machine
from fagen.errors import FagenError
from fagen.ops.quantize import quantize_fp8

HEAD_DIMS = (64, 128, 256)
BATCH_LENGTH_HEADS = (4, 16384, 16)
KINDS: tuple[dict[str, Any], ...] = (
    {"scale": "block"},
    {"scale": "block", "hadamard": True},
    {"scale": "block", "v_transposed": True},
    {"scale": "block", "layout": "bhsd"},
    {"scale": "head"},
    {"scale": "head", "hadamard": True},
    {"scale": "tensor"},
)


@dataclass(frozen=True)
class Rate:
    """One kind of call, and a copy that moves as many bytes."""

    head_dim: int
    options: dict[str, Any] = field(hash=False)
    bytes: int  # of q, k and v, read once and written once
    seconds: float
    copy_seconds: float

    @property
    def share(self) -> float:
        """Of the copy's bandwidth."""
        return self.copy_seconds / self.seconds


def rates(
    batch: int, length: int, heads: int, head_dim: int, kinds: tuple[dict[str, Any], ...], clock: Clock
) -> Iterator[Rate]:
    """Each kind of call on bf16 q, k and v of one size, on the current device."""
    q, k, v = (
        torch.randn(batch, length, heads, head_dim, dtype=torch.bfloat16, device="cuda") for _ in range(3)
    )
    moved = 3 * q.numel() * (q.element_size() + 1)
    copy = _copy(moved // 2, q)
    for options in kinds:
        given: list[Any] = [q, k, v]
        if options.get("layout") == "bhsd":
            given = [x.view(batch, heads, length, head_dim) for x in given]
        call = partial(quantize_fp8, *given, **options)
        call()  # builds the kernels
        of_call, of_copy = (median(times) for times in interleaved([call, copy], clock))
        yield Rate(head_dim, options, moved, of_call, of_copy)


def _copy(count: int, like: Tensor) -> Callable[[], object]:
    source = like.new_zeros(count, dtype=torch.uint8)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def table(found: list[Rate]) -> Table:
    """GB/s, and of the copy."""
    made = Table("head_dim", "call", box=None, pad_edge=False)
    for heading in ("us", "GB/s", "copy GB/s", "share"):
        made.add_column(heading, justify="right", no_wrap=True)
    for rate in found:
        made.add_row(
            str(rate.head_dim),
            ", ".join(f"{name}={value}" for name, value in rate.options.items()),
            f"{rate.seconds * 1e6:,.1f}",
            f"{rate.bytes / rate.seconds / 1e9:,.0f}",
            f"{rate.bytes / rate.copy_seconds / 1e9:,.0f}",
            f"{rate.share:.0%}",
        )
    return made


def main() -> None:
    """Measure all KINDS at all HEAD_DIMS, and print the table."""
    try:
        batch, length, heads = map(int, sys.argv[1].split(",")) if len(sys.argv) > 1 else BATCH_LENGTH_HEADS
    except ValueError:
        sys.exit(f"error: {sys.argv[1]}; allowed: BATCH,S,HEADS, three numbers")
    try:
        arch_of_device(0)
        clock = CudaClock()
        found = [rate for dim in HEAD_DIMS for rate in rates(batch, length, heads, dim, KINDS, clock)]
    except FagenError as error:
        sys.exit(f"error: {error}")
    console = Console(width=120)
    console.print(", ".join(f"{name} {value}" for name, value in machine().items()))
    console.print(f"batch {batch}, S {length}, heads {heads}; bf16 to e4m3", table(found), sep="\n")


if __name__ == "__main__":
    main()
