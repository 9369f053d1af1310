"""What the planner asks of a generation of kernels; `v2.py` and `v3.py` answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

import sympy as sp

from fagen.hw.arch import Arch
from fagen.hw.device import Device
from fagen.plan.budget import Budget, Values
from fagen.plan.ir import Barrier, Buffer, Engines, Plan, Tiling
from fagen.plan.pipeline import Pipeline
from fagen.spec.model import Growth, Lazy, Polynomial, Schedule, Spec

T = TypeVar("T")

# Schedule keys, and what a tiling has for each.
RESOLVED: dict[str, Callable[[Tiling], Any]] = {
    "tile.q": lambda tiling: tiling.q,
    "tile.kv": lambda tiling: tiling.kv,
    "stages.q": lambda tiling: tiling.q_stages,
    "stages.kv": lambda tiling: tiling.stages,
    "roles.load.registers": lambda tiling: tiling.load_registers,
    "roles.math.warps": lambda tiling: tiling.warps,
    "roles.math.registers": lambda tiling: tiling.math_registers,
    "roles.math.pingpong": lambda tiling: tiling.pingpong,
    "roles.math.overlap": lambda tiling: tiling.overlap,
    "q_operand": lambda tiling: tiling.q_operand,
    "ctas_per_sm": lambda tiling: tiling.ctas_per_sm,
    "softmax.exp2": lambda tiling: f"polynomial: {tiling.polynomial:g}" if tiling.polynomial else "hardware",
    "softmax.rescale": lambda tiling: _rescale(tiling),
    "scheduler": lambda tiling: tiling.scheduler,
    "cluster": lambda tiling: tiling.cluster,
    "pack_gqa": lambda tiling: tiling.pack_gqa,
    "backward.tile.q": lambda tiling: tiling.q,
    "backward.tile.kv": lambda tiling: tiling.kv,
    "backward.stages.q": lambda tiling: tiling.stages,
    "backward.stages.ds": lambda tiling: tiling.ds_stages,
    "backward.warps.q": lambda tiling: tiling.warps_q,
    "backward.warps.kv": lambda tiling: tiling.warps_kv,
    "backward.warps.dq": lambda tiling: tiling.warps_dq,
    "backward.ctas_per_sm": lambda tiling: tiling.ctas_per_sm,
    "backward.scheduler": lambda tiling: tiling.scheduler,
}


def _rescale(tiling: Tiling) -> str:
    if tiling.growth is not None:
        return f"growth: {tiling.growth:g}"
    return "always" if tiling.lazy_rescale is None else f"lazy: {tiling.lazy_rescale:g}"


@dataclass(frozen=True)
class Family:
    """A generation of kernels, as far as planning goes."""

    keys: tuple[str, ...]  # the schedule keys that it has, of RESOLVED
    sizes: tuple[str, ...]  # those that decide whether a tiling fits
    symbols: dict[sp.Symbol, str]  # what the symbols of its formulas stand for
    pad: Callable[[int], int]  # columns that a head takes in shared memory
    padding: str  # what they are padded to, in words
    candidates: Callable[[Spec, Arch], Iterator[Tiling]]  # all that the planner may choose; raises PlanError
    budget: Budget
    predict: Callable[[Tiling, Values, Arch, Device], Engines]
    preference: Callable[[Tiling], tuple[float, ...]]  # the smallest goes first among equally fast ones
    buffers: Callable[[Tiling, int, int, int], tuple[Buffer, ...]]  # tiling, dim, dim_v, bytes of an element
    barriers: Callable[[Tiling], tuple[Barrier, ...]]
    pipeline: Callable[[Plan], Pipeline]  # of the kernel that multiplies

    def given(self, schedule: Schedule) -> dict[str, Any]:
        """What a spec says for each key; None: left to the planner."""
        return {key: reduce(getattr, key.split("."), schedule) for key in self.keys}


def choices(given: T | None, among: Sequence[T]) -> Sequence[T]:
    """What is given, or else what there is to choose from."""
    return among if given is None else (given,)


def rescale(schedule: Schedule, default: Lazy | Growth) -> tuple[float | None, float | None]:
    """`Tiling.lazy_rescale` and `Tiling.growth` as the spec gives them."""
    given = schedule.softmax.rescale or default
    lazy = given.lazy if isinstance(given, Lazy) else None
    return lazy, given.growth if isinstance(given, Growth) else None


def polynomial(schedule: Schedule) -> float:
    """`Tiling.polynomial` as the spec gives it; all by the exp2 unit if left out."""
    exp2 = schedule.softmax.exp2
    return exp2.polynomial if isinstance(exp2, Polynomial) else 0.0


def stacked(tiles: Sequence[tuple[str, int, int, int]], element_bytes: int) -> tuple[Buffer, ...]:
    """Buffers one after the other: (name, rows, columns, stages) each."""
    buffers, offset = [], 0
    for name, rows, cols, stages in tiles:
        size = rows * cols * stages * element_bytes
        buffers.append(Buffer(name, offset, rows, cols, stages, size))
        offset += size
    return tuple(buffers)
