"""The attention op's launches in the emulator: called like `fagen.runtime.launch.Launcher`."""

from __future__ import annotations

import struct
from types import SimpleNamespace

from fagen.emit.render import render
from fagen.emu import kernel
from fagen.emu.kernel import Range
from fagen.emu.run import run
from fagen.hw.dtypes import DTYPES
from fagen.plan.ir import Plan
from fagen.plan.params import FORWARD, POINTERS, struct_format

LSE_BYTES = 4


class Emulated:
    """The kernel of a plan, compiled for the emulator."""

    def __init__(self, plan: Plan):
        """Compile and load it. Raises CompileError."""
        self.plan = plan
        self.kernel = kernel.load(render(plan), kernel.shared_buffers(plan))

    def launcher(self, grid: int, scalars: tuple[int | float, ...]) -> Launcher:
        """Launches of `grid` CTAs; `scalars` are the fields of params.FORWARD after the pointers."""
        return Launcher(self, grid, scalars)


class Launcher:
    """One kernel at one grid and one set of shapes and strides; a call takes the pointers and runs it all."""

    def __init__(self, emulated: Emulated, grid: int, scalars: tuple[int | float, ...]):
        self._kernel = emulated.kernel
        self._grid = grid
        self._scalars = scalars
        self._extents = _extents(emulated.plan, scalars)

    def __call__(self, stream: int, q: int, k: int, v: int, out: int, lse: int) -> None:
        """Run the kernel to its end; pointers are addresses of this process, and there are no streams.

        `lse` is 0 where it is not wanted. Raises EmulatorError.
        """
        pointers = {"q": q, "k": k, "v": v, "out": out, "lse": lse}
        ranges = [
            Range(name, address, self._extents[name], writable=name in ("out", "lse"))
            for name, address in pointers.items()
            if address
        ]
        params = struct.pack(struct_format(), *pointers.values(), *self._scalars)
        run(self._kernel, (self._grid, 1, 1), params, ranges)


def _extents(plan: Plan, scalars: tuple[int | float, ...]) -> dict[str, int]:
    """Bytes from the first to the last element of every tensor."""
    p = SimpleNamespace(**dict(zip((param.name for param in FORWARD[POINTERS:]), scalars, strict=True)))
    problem = plan.spec.problem
    heads_kv = p.heads_q // p.heads_per_kv
    extents = {"lse": LSE_BYTES * p.batch * p.heads_q * p.seqlen_q}
    for name, rows, heads, dim in (
        ("q", p.seqlen_q, p.heads_q, problem.head_dim),
        ("k", p.seqlen_k, heads_kv, problem.head_dim),
        ("v", p.seqlen_k, heads_kv, problem.dim_v),
        ("out", p.seqlen_q, p.heads_q, problem.dim_v),
    ):
        sizes = {"batch": p.batch, "row": rows, "head": heads}
        last = sum((size - 1) * getattr(p, f"{name}_{axis}_stride") for axis, size in sizes.items())
        extents[name] = (last + dim) * DTYPES[problem.dtype].bytes if all(sizes.values()) else 0
    return extents
