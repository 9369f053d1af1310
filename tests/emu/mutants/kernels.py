"""The kernels that are mutated, and the launches that put every synchronisation of theirs to work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fagen.emit.render import render
from fagen.emit.source import Source
from fagen.emu import kernel, settings
from fagen.emu.kernel import Kernel
from fagen.emu.launch import SMS, Launcher
from fagen.paths import SPECS
from fagen.plan.arguments import arguments
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape, launch
from fagen.plan.maps import Strides
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

TOLERANCE = 4e-3  # of fp16 outputs around 1, and of LSE
PREEMPTION = 0.1


@dataclass(frozen=True)
class Case:
    """A shipped spec at a small size."""

    spec: str
    overrides: Mapping[str, Any]
    shapes: tuple[Shape, ...]

    @cached_property
    def plan(self) -> Plan:
        """Its plan, with fp16, which numpy has."""
        return plan(load_spec(SPECS / f"{self.spec}.yaml", {"problem.dtype": "fp16", **self.overrides}))

    @cached_property
    def source(self) -> Source:
        """The kernel as it should be."""
        return render(self.plan)

    def load(self, source: Source) -> Kernel:
        """Compile and load a mutant of it."""
        return kernel.load(source, kernel.shared_buffers(self.plan))

    def fault(self, loaded: Kernel, seed: int) -> str:
        """What is wrong with the results under `seed`; empty: nothing. Raises EmulatorError."""
        return next((fault for shape in self.shapes if (fault := self._fault(loaded, shape, seed))), "")

    def _fault(self, loaded: Kernel, shape: Shape, seed: int) -> str:
        problem = self.plan.spec.problem
        random = np.random.default_rng(0)
        b, hq, hkv = shape.batch, shape.heads_q, shape.heads_kv
        sizes = {
            "q": (b, shape.seqlen_q, hq, problem.head_dim),
            "k": (b, shape.seqlen_k, hkv, problem.head_dim),
            "v": (b, shape.seqlen_k, hkv, problem.dim_v),
        }
        arrays = {name: _aligned(size, np.float16) for name, size in sizes.items()}
        for array in arrays.values():
            array[:] = random.standard_normal(array.shape)
        q, k, v = arrays.values()
        arrays["out"] = out = _aligned((b, shape.seqlen_q, hq, problem.dim_v), np.float16)
        arrays["lse"] = lse = _aligned((b, hq, shape.seqlen_q), np.float32)
        out[:] = lse[:] = np.nan
        scale = problem.head_dim**-0.5
        todo = launch(self.plan, shape, scale, SMS)
        strides = {
            name: Strides(*(stride // 2 for stride in arrays[name].strides[:3]))
            for name in ("q", "k", "v", "out")
        }
        launcher = Launcher(loaded, todo, arguments(self.plan, shape, todo, strides))
        with settings.override(seed=seed, preemption=PREEMPTION, os_threads=1):
            launcher(0, *(array.ctypes.data for array in arrays.values()))
        exact_out, exact_lse = _reference(problem.mask, q, k, v, scale)
        for name, got, exact in (("out", out, exact_out), ("lse", lse, exact_lse)):
            far = ~np.isclose(got, exact, rtol=TOLERANCE, atol=TOLERANCE)
            if far.any():
                at = tuple(int(i) for i in np.argwhere(far)[0])
                return f"{name}{list(at)} is {got[at]}, not {exact[at]}, with {shape}"
        return ""


def _aligned(size: tuple[int, ...], dtype: type) -> np.ndarray:
    """An array at a multiple of 16 bytes, which numpy does not promise."""
    count = int(np.prod(size))
    room = np.empty(count + 16, dtype)
    start = -room.ctypes.data % 16 // room.itemsize
    return room[start : start + count].reshape(size)


def _reference(
    mask: object, q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Attention in fp64: out [b, sq, h, dv] and LSE [b, h, sq]."""
    group = q.shape[2] // k.shape[2]
    k, v = (np.repeat(x.astype(np.float64), group, axis=2) for x in (k, v))
    s = np.einsum("bihd,bjhd->bhij", q.astype(np.float64), k) * scale
    if mask == "causal":
        queries, keys = s.shape[2:]
        s[..., np.arange(keys) > np.arange(queries)[:, None] + keys - queries] = -np.inf
    with np.errstate(divide="ignore"):
        top = np.max(s, axis=-1, keepdims=True, initial=-1e30)
        p = np.exp(s - top)
        total = p.sum(axis=-1, keepdims=True)
        lse = (np.log(total) + top)[..., 0]
    return np.einsum("bhij,bjhd->bihd", p / np.where(total == 0, 1, total), v), lse


def _tiles(q: int, kv: int, warps: int, stages: int, q_operand: str) -> dict[str, Any]:
    return {
        "tile": {"q": q, "kv": kv},
        "stages": {"kv": stages},
        "roles": {"math": {"warps": warps}},
        "q_operand": q_operand,
    }


CASES = {
    # Far more tiles than stages; rows that see no key, so that a CTA has nothing to wait for.
    "ring": Case(
        "a100_fa2",
        {"problem.head_dim": 16, "schedule": _tiles(32, 16, 2, 3, "shared")},
        (Shape(1, 40, 170, 2, 1), Shape(1, 70, 20, 1, 1)),
    ),
    # The smallest ring, Q in registers, no mask, a last tile of 4 keys; no keys.
    "registers": Case(
        "a100_fa2",
        {"problem.head_dim": 16, "problem.mask": "none", "schedule": _tiles(32, 32, 2, 2, "registers")},
        (Shape(1, 33, 100, 1, 1), Shape(1, 33, 0, 1, 1)),
    ),
    # O over Q with panels of another width; the shipped head_dim.
    "panels": Case(
        "h200_fa2",
        {
            "problem.head_dim": 128,
            "problem.head_dim_v": 96,
            "schedule": _tiles(64, 32, 4, 3, "shared") | {"ctas_per_sm": 1},
        },
        (Shape(1, 64, 130, 1, 1),),
    ),
}
