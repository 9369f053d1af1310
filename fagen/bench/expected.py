"""Random inputs of a problem, and the result that a right kernel comes close to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fagen.errors import ArgumentError
from fagen.ops import reference
from fagen.ops.checks import torch_dtype
from fagen.ops.layout import BATCH_ROW_HEAD
from fagen.ops.reference_gradients import Gradients, gradients, plain_gradients
from fagen.plan.launch import Shape
from fagen.spec.model import Problem

Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Expected:
    """fp64 out and LSE, and the largest absolute error that out may have (see ops.reference)."""

    out: Tensor
    lse: Tensor
    allowed: float


@dataclass(frozen=True)
class ExpectedGradients:
    """fp64 gradients, and the largest absolute error that each may have."""

    exact: Gradients
    allowed: tuple[float, ...]

    def errors(self, found: Iterable[Tensor]) -> tuple[float, ...]:
        """The largest absolute error of each."""
        return tuple(largest_difference(x, exact) for x, exact in zip(found, self.exact, strict=True))

    def has(self, found: Iterable[Tensor]) -> bool:
        """Whether all errors are within what is allowed; NaN is not."""
        return all(error <= most for error, most in zip(self.errors(found), self.allowed, strict=True))


def random_inputs(problem: Problem, shape: Shape, seed: int, device: str) -> Inputs:
    """What the problem's op takes: standard normal q, k and v in the problem's layout and dtype.

    With packed sequences, all of the shape's lengths, also where each starts and the longest lengths.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def tensor(length: int, heads: int, dim: int) -> Tensor:
        sizes = {
            "bshd": (shape.batch, length, heads, dim),
            "bhsd": (shape.batch, heads, length, dim),
            "thd": (shape.batch * length, heads, dim),
        }[problem.layout]
        return torch.randn(sizes, generator=generator, device=device).to(torch_dtype(problem))

    def offsets(length: int) -> Tensor:
        return length * torch.arange(shape.batch + 1, dtype=torch.int32, device=device)

    tensors = (
        tensor(shape.seqlen_q, shape.heads_q, problem.head_dim),
        tensor(shape.seqlen_k, shape.heads_kv, problem.head_dim),
        tensor(shape.seqlen_k, shape.heads_kv, problem.dim_v),
    )
    if problem.layout != "thd":
        return tensors
    return (*tensors, offsets(shape.seqlen_q), offsets(shape.seqlen_k), shape.seqlen_q, shape.seqlen_k)


def expected(problem: Problem, inputs: Inputs) -> Expected:
    """The reference on these inputs, one K/V head of one batch entry at a time: score matrices are large."""
    batch, _, head = BATCH_ROW_HEAD[problem.layout]
    tensors, offsets = inputs[:3], inputs[3:5]
    group = tensors[0].shape[head] // tensors[1].shape[head]
    entries = []
    for q, k, v in [tensors] if batch is None else zip(*(x.split(1) for x in tensors), strict=True):
        parts = [
            (
                *reference.attention(problem, *qkv, *offsets),
                reference.plain_attention(problem, *qkv, *offsets)[0],
            )
            for qkv in zip(q.split(group, head), k.split(1, head), v.split(1, head), strict=True)
        ]
        out, lse, plain = zip(*parts, strict=True)
        entries.append((torch.cat(out, head), torch.cat(lse, -2), torch.cat(plain, head)))
    out, lse, plain = (torch.cat(x) for x in zip(*entries, strict=True))
    return Expected(out, lse, reference.allowed_error(problem, plain, out))


def random_like(x: Tensor, seed: int) -> Tensor:
    """Standard normal numbers with the sizes and the dtype of `x`, e.g. a gradient of it."""
    generator = torch.Generator(x.device).manual_seed(seed)
    return torch.randn(x.shape, generator=generator, device=x.device).to(x.dtype)


def expected_gradients(problem: Problem, inputs: Inputs, dout: Tensor, **options: Any) -> ExpectedGradients:
    """The reference's gradients on these inputs; `options` are those of ops.reference_gradients."""
    tensors = inputs[:5]
    exact = gradients(problem, *tensors, dout=dout, **options)
    plain = plain_gradients(problem, *tensors, dout=dout, **options)
    allowed = (reference.allowed_gradient_error(problem, *both) for both in zip(plain, exact, strict=True))
    return ExpectedGradients(exact, tuple(allowed))


def largest_difference(found: Tensor, exact: Tensor) -> float:
    """Largest absolute difference; 0 where both are the same infinity, NaN if either is NaN."""
    if exact.numel() == 0:
        return 0.0
    found = found.to(exact.dtype)
    return torch.where(found == exact, 0.0, (found - exact).abs()).max().item()


@contextmanager
def must_fit(shape: Shape) -> Iterator[None]:
    """Turns running out of GPU memory into an ArgumentError that names the shape."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        scores = 8 * shape.heads_q // shape.heads_kv * shape.seqlen_q * shape.seqlen_k
        raise ArgumentError(
            f"shape: is {shape}; allowed: what fits into the GPU's memory together with the fp64 reference, "
            f"which takes several times {scores:,} bytes here"
        ) from error
