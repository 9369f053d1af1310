"""Random inputs of a problem, and the result that a right kernel comes close to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fagen.bench.rows import in_rows
from fagen.errors import ArgumentError
from fagen.ops import reference, reference_fp8
from fagen.ops.checks import torch_dtype
from fagen.ops.descales import Descales
from fagen.ops.layout import BATCH_ROW_HEAD, Packing
from fagen.ops.quantize import Scale
from fagen.ops.reference_gradients import Gradients, gradients, plain_gradients
from fagen.plan.launch import Shape
from fagen.spec.model import Problem

Inputs = tuple[Any, ...]

_NO_ROOM = re.compile(
    "can't allocate memory|size calculation overflowed|multiplication overflow"
)  # the CPU's
SCORES_AT_ONCE = 2**28  # of one K/V head: 2 GiB for each matrix of the fp64 reference


@dataclass(frozen=True)
class Expected:
    """fp64 out and LSE, and the largest error that out may have (see ops.reference)."""

    out: Tensor
    lse: Tensor
    allowed: float
    is_relative: bool = (
        False  # whether that is relative, in L2, as of 8-bit dtypes, or the largest absolute one
    )

    def error(self, out: Tensor) -> float:
        """The error that `allowed` bounds; NaN where there is one.

        Of an `out` of 8 bits it is what there is beyond the error of the exact one rounded to that dtype.
        """
        if not self.is_relative:
            return largest_difference(out, self.out)
        rounding = 0.0
        if out.element_size() == 1:
            rounding = reference.relative_error(self.out.to(out.dtype), self.out)
        return reference.relative_error(out, self.out) - rounding


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


def random_inputs(
    problem: Problem, shape: Shape, seed: int, device: str, scale: Scale | None = None
) -> Inputs:
    """What the problem's op takes: standard normal q, k and v in the problem's layout and dtype.

    With packed sequences, all of the shape's lengths, also where each starts and the longest lengths. 8-bit
    ones are quantised, see ops.reference_fp8 (and `scale` there), and their descales follow after all of
    that, or as many None.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def tensor(length: int, heads: int, dim: int) -> Tensor:
        sizes = {
            "bshd": (shape.batch, length, heads, dim),
            "bhsd": (shape.batch, heads, length, dim),
            "thd": (shape.batch * length, heads, dim),
        }[problem.layout]
        return torch.randn(sizes, generator=generator, device=device)

    def offsets(length: int) -> Tensor:
        return length * torch.arange(shape.batch + 1, dtype=torch.int32, device=device)

    tensors = (
        tensor(shape.seqlen_q, shape.heads_q, problem.head_dim),
        tensor(shape.seqlen_k, shape.heads_kv, problem.head_dim),
        tensor(shape.seqlen_k, shape.heads_kv, problem.dim_v),
    )
    packing: Inputs = ()
    if problem.layout == "thd":
        packing = offsets(shape.seqlen_q), offsets(shape.seqlen_k), shape.seqlen_q, shape.seqlen_k
    if problem.is_fp8:
        tensors, descales = reference_fp8.quantized(problem, *tensors, shape.batch, scale)
        return (*tensors, *(packing or (None,) * len(Packing._fields)), *descales)
    return (*(x.to(torch_dtype(problem)) for x in tensors), *packing)


def expected(problem: Problem, inputs: Inputs) -> Expected:
    """The reference on these inputs, one K/V head of one batch entry at a time: score matrices are large."""
    inputs = in_full(problem, inputs)
    batch, _, head = BATCH_ROW_HEAD[problem.layout]
    tensors, offsets = inputs[:3], inputs[3:5]
    group = tensors[0].shape[head] // tensors[1].shape[head]
    entries = []
    for q, k, v in [tensors] if batch is None else zip(*(x.split(1) for x in tensors), strict=True):
        heads = zip(q.split(group, head), k.split(1, head), v.split(1, head), strict=True)
        parts = [_one_head(problem, *qkv, *offsets) for qkv in heads]
        out, lse, plain = zip(*parts, strict=True)
        entries.append((torch.cat(out, head), torch.cat(lse, -2), torch.cat(plain, head)))
    out, lse, plain = (torch.cat(x) for x in zip(*entries, strict=True))
    return Expected(out, lse, reference.allowed_error(problem, plain, out), problem.is_fp8)


def in_full(problem: Problem, inputs: Inputs) -> Inputs:
    """What the op's inputs stand for, without descales: 8-bit q, k and v in fp32."""
    if not problem.is_fp8:
        return inputs
    q, k, v, *packing = inputs[:-3]
    packing = packing if problem.layout == "thd" else []
    return *reference_fp8.dequantized(problem, q, k, v, Descales(*inputs[-3:]), packing[:2]), *packing


def _one_head(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, *offsets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Exact out and LSE, and out of the plain reference, of one K/V head."""
    if offsets:
        out, lse = reference.attention(problem, q, k, v, *offsets)
        return out, lse, reference.plain_attention(problem, q, k, v, *offsets)[0]
    _, row, _ = BATCH_ROW_HEAD[problem.layout]
    parts = []
    for rows in in_rows(problem, q, k, SCORES_AT_ONCE):
        qkv = _at(row, rows.queries, q), _at(row, rows.keys, k), _at(row, rows.keys, v)
        exact = reference.attention(rows.problem, *qkv)
        parts.append((*exact, reference.plain_attention(rows.problem, *qkv)[0]))
    out, lse, plain = zip(*parts, strict=True)
    return torch.cat(out, row), torch.cat(lse, -1), torch.cat(plain, row)


def _at(row: int, part: slice, x: Tensor) -> Tensor:
    return x.narrow(row, part.start, part.stop - part.start)


def random_like(x: Tensor, seed: int) -> Tensor:
    """Standard normal numbers with the sizes and the dtype of `x`, e.g. a gradient of it."""
    generator = torch.Generator(x.device).manual_seed(seed)
    return torch.randn(x.shape, generator=generator, device=x.device).to(x.dtype)


def expected_gradients(problem: Problem, inputs: Inputs, dout: Tensor, **options: Any) -> ExpectedGradients:
    """The reference's gradients on these inputs; `options` are those of ops.reference_gradients."""
    tensors = inputs[:5]
    if problem.layout == "thd" or options:
        exact = gradients(problem, *tensors, dout=dout, **options)
        plain = plain_gradients(problem, *tensors, dout=dout, **options)
    else:
        exact = _in_rows(gradients, problem, inputs, dout)
        plain = _in_rows(plain_gradients, problem, inputs, dout)
    allowed = (reference.allowed_gradient_error(problem, *both) for both in zip(plain, exact, strict=True))
    return ExpectedGradients(exact, tuple(allowed))


def _in_rows(
    gradients_of: Callable[..., Gradients], problem: Problem, inputs: Inputs, dout: Tensor
) -> Gradients:
    """Those of k and v as sums over the rows of q, in fp64."""
    q, k, v = inputs
    _, row, _ = BATCH_ROW_HEAD[problem.layout]
    dq, dk, dv = (torch.zeros_like(x, dtype=torch.float64) for x in (q, k, v))
    for rows in in_rows(problem, q, k, SCORES_AT_ONCE):
        qkv = _at(row, rows.queries, q), _at(row, rows.keys, k), _at(row, rows.keys, v)
        part = gradients_of(rows.problem, *qkv, dout=_at(row, rows.queries, dout))
        _at(row, rows.queries, dq).copy_(part.dq)
        _at(row, rows.keys, dk).add_(part.dk)
        _at(row, rows.keys, dv).add_(part.dv)
    return Gradients(dq, dk, dv)


def largest_difference(found: Tensor, exact: Tensor) -> float:
    """Largest absolute difference; 0 where both are the same infinity, NaN if either is NaN.

    Raises ArgumentError where `found` has other sizes.
    """
    if found.shape != exact.shape:
        raise ArgumentError(f"result: is {(*found.shape,)}; allowed: {(*exact.shape,)}")
    if exact.numel() == 0:
        return 0.0
    found = found.to(exact.dtype)
    return torch.where(found == exact, 0.0, (found - exact).abs()).max().item()


@contextmanager
def must_fit(shape: Shape) -> Iterator[None]:
    """Turns running out of memory into an ArgumentError that names the shape."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, torch.OutOfMemoryError) or _NO_ROOM.search(str(error))):
            raise
        scores = min(SCORES_AT_ONCE, shape.heads_q // shape.heads_kv * shape.seqlen_q * shape.seqlen_k)
        raise ArgumentError(
            f"shape: is {shape}; allowed: what fits into memory together with the fp64 reference, "
            f"which takes several times {8 * scores:,} bytes here"
        ) from error
