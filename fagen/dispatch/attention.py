"""`fagen.attention`: attention on any tensors, by the best spec there is for them; and `fagen.explain`."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from fagen.dispatch.choose import choice_of
from fagen.dispatch.explanation import Explanation
from fagen.dispatch.lookup import op_for
from fagen.dispatch.problem import Mask, request_of
from fagen.dispatch.traced import traced
from fagen.ops.checks import check_are_tensors, check_scale, check_share


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    *,
    mask: Mask = "none",
    softcap: float | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
    return_lse: Literal[False] = False,
    layout: str | None = None,
    deterministic: bool | None = None,
) -> Tensor: ...


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    *,
    mask: Mask = "none",
    softcap: float | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
    return_lse: Literal[True],
    layout: str | None = None,
    deterministic: bool | None = None,
) -> tuple[Tensor, Tensor]: ...


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    *,
    mask: Mask = "none",
    softcap: float | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
    return_lse: bool = False,
    layout: str | None = None,
    deterministic: bool | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """out, or (out, LSE) with `return_lse`: dropout(softmax(cap(scale * q k^T) + mask)) v, per head.

    Tensors, `scale`, `dropout_p` and packed sequences are as in `AttentionOp.__call__`; fp16 or bf16,
    head_dim a multiple of 8 up to 256. `mask` is "none", "causal" or a window (left, right): the keys that a
    query sees before and after its place, None for all; queries are aligned with the last keys. `softcap`
    c makes c * tanh(score / c) of scores. `layout` is "bshd", "bhsd" or "thd"; left out, thd where there are
    cu_seqlens, else bshd. `deterministic` gradients have the same bits at every run; left out, as
    torch.use_deterministic_algorithms says.

    The kernel is that of a spec: what `fagen tune` found for such a call on this GPU, else what it found on
    such a GPU and ships in specs/tuned, else the shipped or planned one that the model predicts to be
    fastest; `explain` says which, and why. That is decided, and the kernel built, at the first call of its
    kind, and stays for the process: a kind is a problem, whether gradients are asked for, a device, and sizes
    to the nearest power of two. CPU tensors on a machine without a GPU go to the emulator.

    Raises ArgumentError before anything runs, also where no spec is eligible, with the reason of each; and
    what the op raises.
    """
    packing = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    trains = _trains(q, k, v)
    if torch.compiler.is_compiling():
        out, lse = traced(q, k, v, packing, scale, dropout_p, mask, softcap, layout, deterministic, trains)
        return (out, lse) if return_lse else out
    drops = check_share(dropout_p) > 0
    op = op_for(q, k, v, packing, mask, softcap, drops, layout, deterministic, trains)
    return op(q, k, v, *packing, scale=scale, dropout_p=dropout_p, return_lse=return_lse)  # type: ignore[arg-type]


def explain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    *,
    mask: Mask = "none",
    softcap: float | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
    return_lse: bool = False,
    layout: str | None = None,
    deterministic: bool | None = None,
) -> Explanation:
    """Which spec `attention` uses for the same arguments, why, and why each other is not eligible.

    Print it, or read its fields. Builds nothing. Raises ArgumentError for arguments that no spec takes.
    """
    packing = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    drops = check_share(dropout_p) > 0
    request = request_of(q, k, v, packing, mask, softcap, drops, layout, deterministic, _trains(q, k, v))
    check_scale(request.problem, scale)
    return Explanation(choice_of(request), request.shape)


def _trains(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether gradients can be asked for."""
    try:
        return (q.requires_grad or k.requires_grad or v.requires_grad) and torch.is_grad_enabled()
    except AttributeError:
        check_are_tensors(q, k, v)
        raise
