"""What is run of a pass with one of its kernels mutated, and what must come of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fagen.emit.render import render
from fagen.emu import kernel, settings
from fagen.emu.kernel import Kernel
from fagen.emu.launch import SMS, Launcher
from fagen.hw.dtypes import DTYPES
from fagen.ops import reference
from fagen.ops.descales import Descales
from fagen.ops.reference_fp8 import dequantized
from fagen.ops.reference_gradients import gradients
from fagen.plan.arguments import arguments
from fagen.plan.backward_launch import launches
from fagen.plan.descales import DESCALES, Step, sizes
from fagen.plan.ir import Plan
from fagen.plan.kernels import KernelPlan, kernels
from fagen.plan.launch import Shape
from fagen.plan.maps import Strides
from fagen.spec.model import Problem

TOLERANCE = {"forward": 4e-3, "backward": 2e-2}  # of fp16 results around 1, and of LSE
TOLERANCE_FP8 = 0.15  # of out around 1, whose P has 3 bits behind the first
WORKSPACES = {"o_sum", "dq_sum", "row_stats", "turns"}
PREEMPTION = 0.1
STEPS = 10**6  # far more than a right kernel takes
HUGE = 55296.0  # of q and k with head_dim 64: scores are exact in fp32, and their exponents 2036 too small


@dataclass(frozen=True)
class Inputs:
    """Sizes and numbers of one run."""

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


class Trial:
    """One run of a pass and what must come of it."""

    def __init__(self, plan: Plan, inputs: Inputs):
        self.plan, self.inputs = plan, inputs
        problem = plan.spec.problem
        self.given = _inputs(problem, inputs)
        tensors = [torch.from_numpy(array) for array in self.given.values()]
        if inputs.lengths is not None:
            tensors[:3] = [tensor[0] for tensor in tensors[:3]]
        self.steps: dict[str, Step] = {}
        if problem.is_fp8:
            self.given, tensors = _in_8_bits(problem, inputs.shape, tensors)
            for name in DESCALES:
                batch, head = (stride // 4 for stride in self.given[name].strides[:2])
                self.steps[name] = Step(batch, head)
        out, lse = reference.attention(problem, *tensors)
        q, k, v = (self.given[name] for name in "qkv")
        out_size = (*q.shape[:3], problem.dim_v)
        if plan.direction == "forward":
            self.sizes = {"out": out_size, "lse": tuple(lse.shape)}
            self.exact = {"out": out, "lse": lse}
            return
        dout = torch.from_numpy(np.random.default_rng(1).standard_normal(out.shape).astype(np.float16))
        self.given |= {
            "out": _copy(out.half().numpy().reshape(out_size)),
            "lse": _copy(lse.float().numpy()),
            "dout": _copy(dout.numpy().reshape(out_size)),
        }
        if plan.spec.family == "v1":  # m and l: any two that give LSE = m + ln(l)
            self.given["row_stats"] = _copy(torch.stack((lse, lse.isfinite())).float().numpy())
        self.sizes = {"dq": q.shape, "dk": k.shape, "dv": v.shape}
        self.exact = gradients(problem, *tensors, dout=dout)._asdict()

    def fault(self, mutated: KernelPlan, loaded: Kernel, seed: int) -> str:
        """What is wrong with the results under `seed`; empty: nothing. Raises EmulatorError."""
        results = {name: _aligned(size, _dtype(name)) for name, size in self.sizes.items()}
        for array in results.values():
            array[:] = np.nan
        counters = _aligned((2,), np.uint32)
        counters[:] = 0
        arrays = self.given | results | {"counters": counters}
        strides = {name: self._strides(array) for name, array in arrays.items() if array.itemsize < 4}
        todo = launches(self.plan, self.inputs.shape, self.plan.spec.problem.head_dim**-0.5, SMS)
        with settings.override(seed=seed, preemption=PREEMPTION, os_threads=1, step_limit=STEPS):
            for planned, launch in zip(kernels(self.plan), todo, strict=True):
                given = arguments(planned, self.inputs.shape, launch, strides, self.steps)
                for name in WORKSPACES & given.extents.keys() - arrays.keys():
                    arrays[name] = _full_of_nan(given.extents[name])
                addresses = (arrays[name].ctypes.data if name in arrays else 0 for name in given.addresses)
                own = loaded if planned == mutated else kernel.load(render(planned))
                Launcher(own, launch, given)(0, *addresses)
        tolerance = TOLERANCE[self.plan.direction]
        for name, got in results.items():
            got, exact = got.reshape(-1), self.exact[name].numpy().reshape(-1)
            allowed = TOLERANCE_FP8 if self.steps and name == "out" else tolerance
            far = ~np.isclose(got, exact, rtol=allowed, atol=allowed)
            if far.any():
                at = int(np.flatnonzero(far)[0])
                return f"{name}, element {at}, is {got[at]}, not {exact[at]}, with {self.inputs}"
        return f"counters are left at {counters}" if counters.any() else ""

    def _strides(self, array: np.ndarray) -> Strides:
        batch, row, head = (stride // array.itemsize for stride in array.strides[:3])
        return Strides(0 if self.inputs.lengths else batch, row, head)


def _inputs(problem: Problem, inputs: Inputs) -> dict[str, np.ndarray]:
    shape = inputs.shape
    rows_q, rows_k = (shape.batch, shape.seqlen_q), (shape.batch, shape.seqlen_k)
    if inputs.lengths is not None:
        rows_q, rows_k = (1, shape.rows_q), (1, shape.rows_k)
    random = np.random.default_rng(0)
    q, k, v = (
        _aligned((*rows, heads, dim), np.float16)
        for rows, heads, dim in (
            (rows_q, shape.heads_q, problem.head_dim),
            (rows_k, shape.heads_kv, problem.head_dim),
            (rows_k, shape.heads_kv, problem.dim_v),
        )
    )
    for array in (q, k, v):
        array[:] = random.standard_normal(array.shape) if inputs.equal is None else inputs.equal
    v[:] = random.standard_normal(v.shape)
    k[:, : k.shape[1] // 2] *= inputs.steep
    arrays = {"q": q, "k": k, "v": v}
    for name, lengths in zip(("cu_seqlens_q", "cu_seqlens_k"), inputs.lengths or (), strict=False):
        arrays[name] = _copy(np.cumsum([0, *lengths]).astype(np.int32))
    return arrays


def _in_8_bits(
    problem: Problem, shape: Shape, tensors: list[torch.Tensor]
) -> tuple[dict[str, np.ndarray], list[torch.Tensor]]:
    """q, k and v rounded to the problem's 8 bits, with descales around 1; and what they then stand for."""
    random = np.random.default_rng(2)
    q, k, v = (tensor.to(getattr(torch, DTYPES[problem.dtype].torch)) for tensor in tensors)
    if problem.v_transposed:
        v = v.permute(0, 2, 3, 1)
    descales = [
        torch.from_numpy(random.uniform(0.7, 1.4, sizes(problem, name, shape)).astype(np.float32))
        for name in DESCALES
    ]
    given = {name: _copy(x.view(torch.uint8).numpy()) for name, x in zip("qkv", (q, k, v), strict=True)}
    if problem.v_transposed:
        given["v"] = given["v"].transpose(0, 2, 1, 3)  # (batch, row, head, column), as the others
    given |= {name: _copy(x.numpy()) for name, x in zip(DESCALES, descales, strict=True)}
    return given, list(dequantized(problem, q, k, v, Descales(*descales)))


def _dtype(name: str) -> type:
    return np.float32 if name == "lse" else np.float16


def _copy(array: np.ndarray) -> np.ndarray:
    copy = _aligned(array.shape, array.dtype.type)
    copy[:] = array
    return copy


def _full_of_nan(size: int) -> np.ndarray:
    made = _aligned((size,), np.uint8)
    made[:] = 0xFF
    return made


def _aligned(size: tuple[int, ...], dtype: type) -> np.ndarray:
    """An array at a multiple of 16 bytes, which numpy does not promise."""
    count = int(np.prod(size))
    room = np.empty(count + 16, dtype)
    start = -room.ctypes.data % 16 // room.itemsize
    return room[start : start + count].reshape(size)
