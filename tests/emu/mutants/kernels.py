"""The kernels that are mutated, and the launches that put every synchronisation of theirs to work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fagen.emit.render import render
from fagen.emit.source import Source
from fagen.emu import kernel, settings
from fagen.emu.kernel import Kernel
from fagen.emu.launch import SMS, Launcher
from fagen.ops import reference
from fagen.paths import SPECS
from fagen.plan import params
from fagen.plan.arguments import arguments
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape, launch
from fagen.plan.maps import Strides
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

TOLERANCE = 4e-3  # of fp16 outputs around 1, and of LSE
PREEMPTION = 0.1
STEPS = 10**6  # far more than a right kernel takes
HUGE = 55296.0  # of q and k with head_dim 64: scores are exact in fp32, and their exponents 2036 too small


@dataclass(frozen=True)
class Inputs:
    """Sizes and numbers of one launch."""

    shape: Shape
    lengths: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # packed: of each sequence's q and k
    steep: float = (
        1.0  # what the first half of all keys is multiplied by: their scores come last, and are larger
    )
    equal: float | None = None  # all elements of q and k


def packed(
    lengths_q: tuple[int, ...], lengths_k: tuple[int, ...], heads: tuple[int, int], rest: int
) -> Inputs:
    """Packed sequences, with `rest` rows of no sequence behind them."""
    shape = Shape(
        len(lengths_q), max(lengths_q), max(lengths_k), *heads, sum(lengths_q) + rest, sum(lengths_k) + rest
    )
    return Inputs(shape, (lengths_q, lengths_k))


@dataclass(frozen=True)
class Case:
    """A shipped spec at a small size."""

    spec: str
    overrides: Mapping[str, Any]
    launches: tuple[Inputs, ...]

    @cached_property
    def plan(self) -> Plan:
        """Its plan, with fp16, which numpy has."""
        return plan(load_spec(SPECS / f"{self.spec}.yaml", {"problem.dtype": "fp16", **self.overrides}))

    @cached_property
    def source(self) -> Source:
        """The kernel as it should be."""
        return render(self.plan)

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """What is run."""
        return tuple(Trial(self.plan, inputs) for inputs in self.launches)

    def load(self, source: Source) -> Kernel:
        """Compile and load a mutant of it."""
        return kernel.load(source, kernel.shared_buffers(self.plan))

    def fault(self, loaded: Kernel, seed: int) -> str:
        """What is wrong with the results under `seed`; empty: nothing. Raises EmulatorError."""
        return next((fault for trial in self.trials if (fault := trial.fault(loaded, seed))), "")


class Trial:
    """One launch and what must come of it."""

    def __init__(self, plan: Plan, inputs: Inputs):
        self.plan, self.inputs = plan, inputs
        problem, shape = plan.spec.problem, inputs.shape
        tokens = shape.tokens_q, shape.tokens_k
        sizes = (
            ((shape.batch, shape.seqlen_q), (shape.batch, shape.seqlen_k))
            if inputs.lengths is None
            else ((1, tokens[0] or 0), (1, tokens[1] or 0))
        )
        random = np.random.default_rng(0)
        q, k, v = (
            _aligned((*rows, heads, dim), np.float16)
            for rows, heads, dim in (
                (sizes[0], shape.heads_q, problem.head_dim),
                (sizes[1], shape.heads_kv, problem.head_dim),
                (sizes[1], shape.heads_kv, problem.dim_v),
            )
        )
        for array in (q, k, v):
            array[:] = random.standard_normal(array.shape) if inputs.equal is None else inputs.equal
        v[:] = random.standard_normal(v.shape)
        k[:, : k.shape[1] // 2] *= inputs.steep
        self.arrays = {"q": q, "k": k, "v": v}
        for name, lengths in zip(("cu_seqlens_q", "cu_seqlens_k"), inputs.lengths or (), strict=False):
            offsets = np.cumsum([0, *lengths]).astype(np.int32)
            self.arrays[name] = _aligned(offsets.shape, np.int32)
            self.arrays[name][:] = offsets
        given = [torch.from_numpy(array) for array in self.arrays.values()]
        if inputs.lengths is not None:
            given[:3] = [tensor[0] for tensor in given[:3]]
        self.exact = [x.numpy().reshape(-1) for x in reference.attention(problem, *given)]
        self.out_size = (*q.shape[:3], problem.dim_v)

    def fault(self, loaded: Kernel, seed: int) -> str:
        """See Case.fault."""
        shape = self.inputs.shape
        out, counters = _aligned(self.out_size, np.float16), _aligned((2,), np.uint32)
        lse = _aligned(self.exact[1].shape, np.float32)
        out[:] = lse[:] = np.nan
        counters[:] = 0
        arrays = self.arrays | {"out": out, "lse": lse, "counters": counters}
        todo = launch(self.plan, shape, self.plan.spec.problem.head_dim**-0.5, SMS)
        strides = {
            name: Strides(*(stride // 2 for stride in arrays[name].strides[:3]))
            for name in ("q", "k", "v", "out")
        }
        launcher = Launcher(loaded, todo, arguments(self.plan, shape, todo, strides))
        addresses = (arrays[name].ctypes.data for name in params.ADDRESSES if name in arrays)
        with settings.override(seed=seed, preemption=PREEMPTION, os_threads=1, step_limit=STEPS):
            launcher(0, *addresses)
        for name, got, exact in zip(("out", "lse"), (out.reshape(-1), lse), self.exact, strict=True):
            far = ~np.isclose(got, exact, rtol=TOLERANCE, atol=TOLERANCE)
            if far.any():
                at = int(np.flatnonzero(far)[0])
                return f"{name}, element {at}, is {got[at]}, not {exact[at]}, with {self.inputs}"
        return f"counters are left at {counters}" if counters.any() else ""


def _aligned(size: tuple[int, ...], dtype: type) -> np.ndarray:
    """An array at a multiple of 16 bytes, which numpy does not promise."""
    count = int(np.prod(size))
    room = np.empty(count + 16, dtype)
    start = -room.ctypes.data % 16 // room.itemsize
    return room[start : start + count].reshape(size)


def _tiles(q: int, kv: int, warps: int, stages: int, q_operand: str) -> dict[str, Any]:
    return {
        "tile": {"q": q, "kv": kv},
        "stages": {"kv": stages},
        "roles": {"math": {"warps": warps}},
        "q_operand": q_operand,
    }


def _v3(q_stages: int, stages: int, warpgroups: int = 1, kv: int = 32, **math: Any) -> dict[str, Any]:
    return {
        "tile": {"q": 64 * warpgroups, "kv": kv},
        "stages": {"q": q_stages, "kv": stages},
        "roles": {"math": {"warps": 4 * warpgroups} | math},
    }


CASES = {
    # Far more tiles than stages; rows that see no key, so that a CTA has nothing to wait for.
    "ring": Case(
        "a100_fa2",
        {"problem.head_dim": 16, "schedule": _tiles(32, 16, 2, 3, "shared")},
        (Inputs(Shape(1, 40, 170, 2, 1)), Inputs(Shape(1, 70, 20, 1, 1))),
    ),
    # The smallest ring, Q in registers, no mask, a last tile of 4 keys; no keys.
    "registers": Case(
        "a100_fa2",
        {"problem.head_dim": 16, "problem.mask": "none", "schedule": _tiles(32, 32, 2, 2, "registers")},
        (Inputs(Shape(1, 33, 100, 1, 1)), Inputs(Shape(1, 33, 0, 1, 1))),
    ),
    # O over Q with panels of another width; the shipped head_dim.
    "panels": Case(
        "h200_fa2",
        {
            "problem.head_dim": 128,
            "problem.head_dim_v": 96,
            "schedule": _tiles(64, 32, 4, 3, "shared") | {"ctas_per_sm": 1},
        },
        (Inputs(Shape(1, 64, 130, 1, 1)),),
    ),
    # Several items for each CTA, handed out by the counter; a growth that many tiles exceed.
    "v3": Case(
        "h200_fa3",
        {
            "problem.head_dim": 64,
            "schedule": _v3(2, 2) | {"softmax": {"rescale": {"growth": 2}}},
        },
        (
            Inputs(Shape(1, 150, 170, 4, 2)),
            Inputs(Shape(1, 64, 200, 1, 1), steep=40),
            Inputs(Shape(1, 64, 130, 1, 1), equal=HUGE),
            Inputs(Shape(3, 64, 20, 4, 2)),
        ),
    ),
    # Three warpgroups that take turns, and no room for O in shared memory: it is stored from registers.
    "v3_turns": Case(
        "h200_fa3",
        {
            "problem.head_dim": 64,
            "problem.mask": "none",
            "schedule": _v3(1, 8, 3, 96, pingpong=True) | {"softmax": {"rescale": "always"}},
        },
        (Inputs(Shape(1, 200, 300, 3, 1)),),
    ),
    # The products of a tile, then its softmax; packed sequences, one without queries, and rows of none.
    "v3_packed": Case(
        "h200_fa3",
        {
            "problem.head_dim": 64,
            "problem.layout": "thd",
            "schedule": _v3(2, 2, 2, pingpong=True, overlap=False) | {"scheduler": "persistent_lpt"},
        },
        (packed((130, 0, 70, 5), (90, 20, 100, 0), (2, 1), rest=3),),
    ),
    # Pairs of CTAs that share K and V, with several items each.
    "v3_cluster": Case(
        "h200_fa3",
        {
            "problem.head_dim": 64,
            "problem.mask": {"window": [70, 3]},
            "schedule": _v3(2, 2) | {"cluster": 2},
        },
        (Inputs(Shape(1, 200, 190, 4, 2)),),
    ),
}
