"""Random inputs of a problem, and the result that a right kernel comes close to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from fagen.errors import ArgumentError
from fagen.ops import reference
from fagen.ops.checks import BATCH_ROW_HEAD, torch_dtype
from fagen.plan.launch import Shape
from fagen.spec.model import Problem

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Expected:
    """fp64 out and LSE, and the largest absolute error that out may have (see ops.reference)."""

    out: Tensor
    lse: Tensor
    allowed: float


def random_inputs(problem: Problem, shape: Shape, seed: int, device: str) -> Tensors:
    """Standard normal q, k and v in the problem's layout and dtype."""
    generator = torch.Generator(device).manual_seed(seed)

    def tensor(length: int, heads: int, dim: int) -> Tensor:
        middle = (length, heads) if problem.layout == "bshd" else (heads, length)
        sizes = (shape.batch, *middle, dim)
        return torch.randn(sizes, generator=generator, device=device).to(torch_dtype(problem))

    return (
        tensor(shape.seqlen_q, shape.heads_q, problem.head_dim),
        tensor(shape.seqlen_k, shape.heads_kv, problem.head_dim),
        tensor(shape.seqlen_k, shape.heads_kv, problem.dim_v),
    )


def expected(problem: Problem, inputs: Tensors) -> Expected:
    """The reference on these inputs, one K/V head of one batch entry at a time: score matrices are large."""
    head = BATCH_ROW_HEAD[problem.layout][2]
    group = inputs[0].shape[head] // inputs[1].shape[head]
    entries = []
    for q, k, v in zip(*(x.split(1) for x in inputs), strict=True):
        parts = [
            (*reference.attention(problem, *qkv), reference.plain_attention(problem, *qkv))
            for qkv in zip(q.split(group, head), k.split(1, head), v.split(1, head), strict=True)
        ]
        out, lse, plain = zip(*parts, strict=True)
        entries.append((torch.cat(out, head), torch.cat(lse, 1), torch.cat(plain, head)))
    out, lse, plain = (torch.cat(x) for x in zip(*entries, strict=True))
    return Expected(out, lse, reference.allowed_error(problem, plain, out))


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
