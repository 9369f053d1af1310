"""How accurate an 8-bit spec is beside 16 bits: errors against fp64, by how q, k and v are quantised.

The table is that of the FlashAttention-3 paper (section 4.3, table 3). The reference is computed on numbers
before any rounding, so that an error has everything in it: that of q, k and v to 8 or 16 bits, of P, and of
out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from fagen.bench import kernel_model
from fagen.bench.distributions import DISTRIBUTIONS, draw_inputs
from fagen.bench.expected import must_fit
from fagen.bench.heads import by_head
from fagen.bench.peers.torch_sdpa import torch_flash
from fagen.bench.sixteen_bits import in_16_bits
from fagen.errors import ArgumentError, FagenError
from fagen.ops import reference, reference_quantize
from fagen.ops.checks import torch_dtype
from fagen.ops.load import load
from fagen.ops.quantize import Quantized, quantize_fp8
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec
from fagen.spec.model import Problem, Spec

ALWAYS = "fagen, rescale: always"  # row maxima are looked for in every tile: a row's largest P is 1


@dataclass(frozen=True)
class Way:
    """A way to compute attention."""

    by: str  # a key of _BY; "standard": scores and P in memory, as an eager model has them
    dtype: str
    scale: str = ""  # of 8 bits: what quantize_fp8 takes
    hadamard: bool = False

    def __str__(self) -> str:
        words = self.by, self.dtype, self.scale, "Hadamard" if self.hadamard else ""
        return ", ".join(filter(None, words))


@dataclass(frozen=True)
class Row:
    """What a way gave."""

    way: Way
    rmse: float = 0.0  # root of the mean squared error of out's elements, against fp64
    worst: float = 0.0  # the largest absolute one
    problem: str = ""  # why it gave nothing


class Runner(Protocol):
    """What runs a spec's forward."""

    @property
    def device(self) -> str:
        """torch's name of where the tensors are."""
        ...

    def quantize(self, problem: Problem, way: Way, q: Tensor, k: Tensor, v: Tensor) -> Quantized:
        """fp32 to 8 bits."""
        ...

    def attend(self, spec: Spec, q: Tensor, k: Tensor, v: Tensor, *descales: Tensor) -> Tensor:
        """out; `descales` are those of q, k and v where they have 8 bits."""
        ...


@dataclass(frozen=True)
class Kernels:
    """The kernels themselves, on a CUDA device, or on "cpu" in the emulator."""

    device: str

    def quantize(self, problem: Problem, way: Way, q: Tensor, k: Tensor, v: Tensor) -> Quantized:
        """By the kernel, which takes fp16: 2^-8 of what 8 bits lose."""
        options: dict[str, Any] = {"v_transposed": problem.v_transposed, "layout": problem.layout}
        half = (x.half() for x in (q, k, v))
        return quantize_fp8(*half, way.scale, way.hadamard, problem.dtype, **options)  # type: ignore[arg-type]

    def attend(self, spec: Spec, q: Tensor, k: Tensor, v: Tensor, *descales: Tensor) -> Tensor:
        """By the kernel."""
        names = ("q_descale", "k_descale", "v_descale")
        given: dict[str, Any] = dict(zip(names, descales, strict=False))
        return load(spec, device="emu" if self.device == "cpu" else None)(q, k, v, **given)


@dataclass(frozen=True)
class Model:
    """A model of the kernels in torch, see kernel_model."""

    device: str

    def quantize(self, problem: Problem, way: Way, q: Tensor, k: Tensor, v: Tensor) -> Quantized:
        """By the quantise kernel's reference."""
        options: dict[str, Any] = {"dtype": torch_dtype(problem), "layout": problem.layout}
        return reference_quantize.quantize(q, k, v, way.scale, way.hadamard, **options)  # type: ignore[arg-type]

    def attend(self, spec: Spec, q: Tensor, k: Tensor, v: Tensor, *descales: Tensor) -> Tensor:
        """By the model."""
        return kernel_model.attention(plan(spec), q, k, v, *descales)


def ways(spec: Spec, device: str) -> tuple[Way, ...]:
    """What there is to compare with an 8-bit spec on a torch device. Raises ArgumentError for other specs."""
    problem = spec.problem
    for key, value, is_allowed, allowed in (
        ("dtype", problem.dtype, problem.is_fp8, "e4m3, e5m2"),
        ("layout", problem.layout, problem.layout != "thd", "bshd, bhsd"),
        ("softcap", problem.softcap, problem.softcap is None, "leaving it out"),
    ):
        if not is_allowed:
            raise ArgumentError(f"{spec.name}: problem.{key}: is {value}; allowed: {allowed}")
    eight = partial(Way, "fagen", problem.dtype)
    return (
        Way("standard", "fp16"),
        *((Way("torch flash", "fp16"),) if device.startswith("cuda") else ()),
        Way("fagen", "fp16"),
        Way(ALWAYS, "fp16"),
        Way("fagen", "bf16"),
        Way("standard", problem.dtype, "tensor"),
        eight("tensor"),
        eight("head"),
        eight("block"),
        eight("head", hadamard=True),
        eight("block", hadamard=True),
    )


def measure(spec: Spec, shape: Shape, dist: str, seed: int, runner: Runner) -> Iterator[Row]:
    """A row for each of `ways`, on inputs of DISTRIBUTIONS[dist], as it is there.

    Raises ArgumentError for a spec or a shape that cannot be.
    """
    todo = ways(spec, runner.device)
    with must_fit(shape):
        exact_problem = in_16_bits(spec, "fp16").problem
        inputs = draw_inputs(DISTRIBUTIONS[dist], exact_problem, shape, seed, runner.device)
        exact = by_head(lambda *qkv: reference.attention(exact_problem, *qkv)[0], exact_problem, *inputs)
        for way in todo:
            try:
                out = _out(spec, way, runner, inputs)
            except (FagenError, RuntimeError) as failure:
                yield Row(way, problem=str(failure).splitlines()[0])
                continue
            error = out.double() - exact
            yield Row(way, error.square().mean().sqrt().item(), error.abs().max().item())


def _out(spec: Spec, way: Way, runner: Runner, inputs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    if way.scale:
        if way.by == "standard":
            problem = spec.problem.model_copy(update={"v_transposed": False})
            return _standard_in_8_bits(problem, runner.quantize(problem, way, *inputs))
        scaled = load_spec(spec, {"problem.fp8.scale": "block" if way.scale == "block" else "head"})
        return runner.attend(scaled, *runner.quantize(spec.problem, way, *inputs))
    own = in_16_bits(spec, way.dtype)
    rounded = [x.to(torch_dtype(own.problem)) for x in inputs]
    return _BY[way.by](own, runner, *rounded)


def _fagen(own: Spec, runner: Runner, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return runner.attend(own, q, k, v)


def _fagen_always(own: Spec, runner: Runner, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return runner.attend(load_spec(own, {"schedule.softmax.rescale": "always"}), q, k, v)


def _standard(own: Spec, runner: Runner, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return by_head(lambda *qkv: reference.plain_attention(own.problem, *qkv)[0], own.problem, q, k, v)


def _torch_flash(own: Spec, runner: Runner, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch_flash(own.problem, q, k, v)()


_BY: dict[str, Callable[..., Tensor]] = {
    "fagen": _fagen,
    ALWAYS: _fagen_always,
    "standard": _standard,
    "torch flash": _torch_flash,
}


def _standard_in_8_bits(problem: Problem, given: Quantized) -> Tensor:
    """The paper's baseline: products of 8-bit numbers, softmax in fp16, P rounded to 8 bits as it is."""
    q, k, v = (
        reference_quantize.dequantize(x, descale, problem.layout)
        for x, descale in zip(given[:3], given[3:], strict=True)
    )

    def one(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(1, 2) if problem.layout == "bshd" else x for x in (q, k, v))
        scores = q @ k.mT * problem.head_dim**-0.5
        seen = reference.visible(problem, q.shape[2], k.shape[2], q.device)
        p = scores.masked_fill(~seen, -math.inf).softmax(-1).half().masked_fill(~seen, 0.0)
        out = p.to(torch.float8_e4m3fn).float() @ v
        return out.transpose(1, 2) if problem.layout == "bshd" else out

    return by_head(one, problem, q, k, v)
