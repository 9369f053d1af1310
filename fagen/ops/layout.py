"""Where batch, sequence and heads are among a tensor's axes, and the sizes and strides that follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from fagen.plan.launch import Shape
from fagen.plan.maps import Strides
from fagen.spec.model import Problem

AXES = {
    "bshd": ("batch", "sequence", "heads", "head_dim"),
    "bhsd": ("batch", "heads", "sequence", "head_dim"),
    "thd": ("tokens", "heads", "head_dim"),
}
BATCH_ROW_HEAD: dict[str, tuple[int | None, int, int]] = {
    "bshd": (0, 1, 2),
    "bhsd": (0, 2, 1),
    "thd": (None, 0, 1),
}


TRANSPOSED = ("batch", "heads", "head_dim", "sequence")  # of v, with problem.v_transposed


def axes(problem: Problem, name: str) -> tuple[str, ...]:
    """The axes of q, k or v, or of what has the same."""
    return TRANSPOSED if name == "v" and problem.v_transposed else AXES[problem.layout]


class Packing(NamedTuple):
    """Where sequences start in packed tensors: what an op of layout thd takes beside q, k and v."""

    cu_seqlens_q: Tensor  # int32 [sequences + 1]
    cu_seqlens_k: Tensor
    max_seqlen_q: int
    max_seqlen_k: int

    @property
    def offsets(self) -> tuple[Tensor, Tensor]:
        """The tensors."""
        return self.cu_seqlens_q, self.cu_seqlens_k

    @property
    def lengths(self) -> tuple[int, int]:
        """The numbers."""
        return self.max_seqlen_q, self.max_seqlen_k


def shape_of(problem: Problem, q: Tensor, k: Tensor, packing: Packing | None) -> Shape:
    """The sizes of a call."""
    batch, row, head = BATCH_ROW_HEAD[problem.layout]
    heads = q.shape[head], k.shape[head]
    if batch is not None:
        return Shape(q.shape[batch], q.shape[row], k.shape[row], *heads)
    assert packing is not None
    sequences = packing.cu_seqlens_q.shape[0] - 1
    return Shape(sequences, packing.max_seqlen_q, packing.max_seqlen_k, *heads, q.shape[row], k.shape[row])


def result_sizes(problem: Problem, q: Tensor) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The sizes of out and LSE."""
    batch, row, head = BATCH_ROW_HEAD[problem.layout]
    sequences = () if batch is None else (q.shape[batch],)
    return (*q.shape[:-1], problem.dim_v), (*sequences, q.shape[head], q.shape[row])


def strides_of(problem: Problem, strides: Sequence[int], name: str = "") -> Strides:
    """A tensor's strides by what they step along; a row of a transposed v is of keys."""
    if name == "v" and problem.v_transposed:
        return Strides(batch=strides[0], row=strides[2], head=strides[1])
    batch, row, head = BATCH_ROW_HEAD[problem.layout]
    return Strides(0 if batch is None else strides[batch], strides[row], strides[head])


def contiguous(sizes: Sequence[int]) -> tuple[int, ...]:
    """Strides of a new tensor."""
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides)
