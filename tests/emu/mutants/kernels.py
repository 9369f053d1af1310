"""The kernels that are mutated, and the launches that put every synchronisation of theirs to work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fagen.emit.render import render
from fagen.emit.source import Source
from fagen.emu import kernel
from fagen.emu.kernel import Kernel
from fagen.paths import SPECS
from fagen.plan.kernels import KernelPlan, kernels
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

from .trials import HUGE, Inputs, Trial, packed


@dataclass(frozen=True)
class Case:
    """A kernel of a shipped spec at a small size."""

    spec: str
    overrides: Mapping[str, Any]
    launches: tuple[Inputs, ...]
    kernel: str = "forward"

    @cached_property
    def planned(self) -> KernelPlan:
        """It, with fp16, which numpy has, where the spec has 16 bits."""
        spec = load_spec(SPECS / f"{self.spec}.yaml")
        key = "problem.out_dtype" if spec.problem.is_fp8 else "problem.dtype"
        spec = load_spec(SPECS / f"{self.spec}.yaml", {key: "fp16", **self.overrides})
        direction = self.kernel.partition("_")[0]
        return next(own for own in kernels(plan(spec, None, direction)) if own.name == self.kernel)

    @cached_property
    def source(self) -> Source:
        """The kernel as it should be."""
        return render(self.planned)

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """What is run."""
        return tuple(Trial(self.planned.plan, inputs) for inputs in self.launches)

    def load(self, source: Source) -> Kernel:
        """Compile and load a mutant of it."""
        return kernel.load(source, kernel.shared_buffers(self.planned))

    def fault(self, loaded: Kernel, seed: int) -> str:
        """What is wrong with the results under `seed`; empty: nothing. Raises EmulatorError."""
        faults = (trial.fault(self.planned, loaded, seed) for trial in self.trials)
        return next(filter(None, faults), "")


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


def _backward(warps: tuple[int, int, int], stages: int) -> dict[str, Any]:
    return {
        "tile": {"q": 32, "kv": 32},
        "warps": dict(zip(("q", "kv", "dq"), warps, strict=True)),
        "stages": {"q": stages, "ds": stages},
    }


# Several Q tiles for each of several K/V tiles, of grouped heads; deterministic, with every tile two times.
_GROUPED = {
    "problem.head_dim": 32,
    "problem.deterministic": True,
    "schedule.backward": _backward((1, 2, 2), 2),
}
# One stage of each, packed sequences, one without queries, one without keys, and rows of none.
_PACKED = {
    "problem.head_dim": 64,
    "problem.layout": "thd",
    "schedule.backward": _backward((2, 2, 1), 1),
}
_RUNS = (Inputs(Shape(1, 70, 90, 4, 2)), Inputs(Shape(1, 90, 40, 2, 2)))
_PACKED_RUNS = (packed((70, 0, 40, 5), (50, 20, 40, 0), (2, 1), rest=3),)
_V1 = {"problem.head_dim": 40, "schedule.tile": {"q": 32, "kv": 32}}
_V1_ONE_STAGE = {"arch": "sm_86", "device": "rtx3090", "problem.head_dim": 256}  # no room for two

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
    # V transposed on its way, more tiles than stages, several items; a growth that many tiles exceed.
    "v3_fp8": Case(
        "h200_fp8",
        {
            "problem.head_dim": 64,
            "schedule": _v3(2, 2, 2, pingpong=True) | {"softmax": {"rescale": {"growth": 2}}},
        },
        (Inputs(Shape(1, 150, 170, 4, 2)), Inputs(Shape(1, 64, 200, 1, 1), steep=8)),
    ),
    # Descales of blocks, O summed in two levels; V^T that comes as it is.
    "v3_fp8_blocks": Case(
        "h200_fp8",
        {
            "problem.head_dim": 64,
            "problem.fp8": {"scale": "block"},
            "problem.v_transposed": True,
            "schedule": _v3(1, 2) | {"accumulate": {"promote_every": 64}, "softmax": {"rescale": "always"}},
        },
        (Inputs(Shape(1, 150, 160, 2, 2), steep=4),),
    ),
    # Pairs of CTAs that share V before it is transposed.
    "v3_fp8_cluster": Case(
        "h200_fp8",
        {"problem.head_dim": 64, "schedule": _v3(1, 2) | {"cluster": 2}},
        (Inputs(Shape(1, 200, 190, 2, 1)),),
    ),
    # Blocks of which O, l, m and dQ are read again and again; grouped heads, rows that see no key.
    "v1": Case("a100_fa1", _V1, _RUNS),
    "v1_backward": Case("a100_fa1", _V1, _RUNS, "backward"),
    "v1_backward_one_stage": Case("a100_fa1", _V1_ONE_STAGE, _RUNS, "backward"),
    **{
        f"{name}_{which}": Case("a100_fa2", overrides, runs, name)
        for name in ("backward_prepare", "backward", "backward_convert")
        for which, overrides, runs in (
            ("grouped", _GROUPED, _RUNS),
            ("packed", _PACKED, _PACKED_RUNS),
        )
    },
}
