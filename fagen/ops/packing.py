"""What an op accepts of packed sequences: offsets and longest lengths.

`check_packing` looks at what a fake tensor has too; the offsets' values stay on the GPU and are looked at
only where `metadata` says so.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fagen.errors import ArgumentError
from fagen.ops.layout import Packing
from fagen.ops.metadata import is_checked
from fagen.spec.model import Problem


def refuse_packing(problem: Problem, given: tuple[Any, ...]) -> None:
    """Raise ArgumentError for a field of Packing that is given to an op whose layout has none of them."""
    name = next(name for name, x in zip(Packing._fields, given, strict=True) if x is not None)
    raise ArgumentError(
        f"{name}: is given, but sequences are not packed (problem.layout: {problem.layout}); "
        "allowed: leaving it out"
    )


def check_packing(packing: Packing, q: Tensor) -> None:
    """Type, dtype, device and sizes of offsets, which may be fake tensors, and the lengths.

    Any field may be anything. Raises ArgumentError.
    """
    for name, x in zip(Packing._fields, packing.offsets, strict=False):
        _check_offsets(name, x, q)
    found_q, found_k = packing.cu_seqlens_q.shape[0], packing.cu_seqlens_k.shape[0]
    if found_q != found_k:
        raise ArgumentError(
            f"cu_seqlens_k: has {found_k} offsets; allowed: {found_q}, as cu_seqlens_q (one for each "
            "sequence, and the end)"
        )
    _check_length("max_seqlen_q", packing.max_seqlen_q)
    _check_length("max_seqlen_k", packing.max_seqlen_k)


def _check_offsets(name: str, x: Any, q: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise ArgumentError(
            f"{name}: is a {type(x).__name__}; allowed: a torch.Tensor of the sequences' starts and the end "
            "(problem.layout: thd)"
        )
    if x.dtype != torch.int32:
        raise ArgumentError(f"{name}: is {x.dtype}; allowed: torch.int32 (use {name}.int())")
    if x.device != q.device:
        raise ArgumentError(f"{name}: is on {x.device}; allowed: {q.device}, as q")
    if x.dim() != 1 or x.shape[0] < 2:
        raise ArgumentError(
            f"{name}: has shape ({', '.join(map(str, x.shape))}); allowed: 1 dimension, an offset for "
            "each of one or more sequences, and the end"
        )
    if not x.is_contiguous():
        raise ArgumentError(
            f"{name}: has stride {x.stride(0)}; allowed: contiguous tensors (use {name}.contiguous())"
        )


def _check_length(name: str, x: Any) -> None:
    if not isinstance(x, int | torch.SymInt):
        hint = f" ({name}.item() copies the tensor to the host)" if isinstance(x, Tensor) else ""
        raise ArgumentError(f"{name}: is a {type(x).__name__}; allowed: a Python int{hint}")
    if x < 0:
        raise ArgumentError(f"{name}: is {x}; allowed: the length of the longest sequence, 0 or more")


def check_values(packing: Packing, tokens_q: int, tokens_k: int) -> None:
    """The offsets' values, if metadata is checked: waits for the GPU. Raises ArgumentError."""
    if not is_checked():
        return
    for side, offsets, longest, tokens in (
        ("q", packing.cu_seqlens_q, packing.max_seqlen_q, tokens_q),
        ("k", packing.cu_seqlens_k, packing.max_seqlen_k, tokens_k),
    ):
        at = offsets.tolist()
        lengths = [end - start for start, end in pairwise(at)]
        if at[0] != 0:
            raise ArgumentError(f"cu_seqlens_{side}: starts with {at[0]}; allowed: 0")
        if min(lengths) < 0:
            i = lengths.index(min(lengths))
            raise ArgumentError(
                f"cu_seqlens_{side}: falls from {at[i]} to {at[i + 1]} at sequence {i}; "
                "allowed: offsets that do not fall"
            )
        if at[-1] > tokens:
            raise ArgumentError(
                f"cu_seqlens_{side}: ends with {at[-1]}; allowed: up to {tokens}, {side}'s tokens"
            )
        if max(lengths) > longest:
            i = lengths.index(max(lengths))
            raise ArgumentError(
                f"max_seqlen_{side}: is {longest}; allowed: {lengths[i]} or more, the length of sequence {i}"
            )
