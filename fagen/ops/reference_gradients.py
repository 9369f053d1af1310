"""Gradients of attention in plain PyTorch: what a backward must compute, by autograd through `ops.reference`.

`gradients` is exact (fp64); `plain_gradients` is what an eager model gets in the input dtype, from which
`reference.allowed_gradient_error` makes the tolerance for a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fagen.ops import reference
from fagen.spec.model import Problem

SCORES_AT_ONCE = 2**26  # of each score matrix; one K/V head of one batch entry may have more

Attend = Callable[..., tuple[Tensor, Tensor]]


class Gradients(NamedTuple):
    """Of q, k and v, each of its tensor's sizes."""

    dq: Tensor
    dk: Tensor
    dv: Tensor


def gradients(problem: Problem, *inputs: Tensor, dout: Tensor, **options: Any) -> Gradients:
    """Of sum(out * dout) + sum(lse * dlse), with out and LSE from `reference.attention`; fp64.

    `inputs` are its tensors: q, k, v and, in layout thd, cu_seqlens_q and cu_seqlens_k. dout has the sizes of
    out. `options` are dlse, of the sizes of LSE (no gradient through LSE if left out), and its `scale`,
    `kept` and `dropout_p`. What only rows of no sequence see is 0.
    """
    return _gradients(reference.attention, torch.float64, problem, *inputs, dout=dout, **options)


def plain_gradients(problem: Problem, *inputs: Tensor, dout: Tensor, **options: Any) -> Gradients:
    """`gradients` through `reference.plain_attention`, in the input dtype."""
    return _gradients(reference.plain_attention, inputs[0].dtype, problem, *inputs, dout=dout, **options)


def _gradients(
    attend: Attend,
    dtype: torch.dtype,
    problem: Problem,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    *,
    dout: Tensor,
    dlse: Tensor | None = None,
    kept: Tensor | None = None,
    **options: Any,
) -> Gradients:
    found = Gradients(*(torch.zeros_like(x, dtype=dtype) for x in (q, k, v)))
    if cu_seqlens_q is None or cu_seqlens_k is None:
        parts = _by_head(problem, (q, k, v, *found), dout, dlse, kept)
    else:
        parts = _by_sequence((q, k, v, *found), cu_seqlens_q, cu_seqlens_k, dout, dlse, kept)
    alone = problem.model_copy(update={"layout": "bhsd"})
    for part in parts:
        leaves = [x.to(dtype).detach().requires_grad_() for x in part.inputs]
        out, lse = attend(alone, *leaves, kept=part.kept, **options)
        outputs, grads = [out], [part.dout.to(out.dtype)]
        if part.dlse is not None:
            outputs, grads = [out, lse], [*grads, part.dlse.to(lse.dtype)]
        for own, gradient in zip(part.found, torch.autograd.grad(outputs, leaves, grads), strict=True):
            own.copy_(gradient)
    return found


class _Part(NamedTuple):
    """Some heads of some sequences of the same lengths, as views [batch, heads, sequence, ...]."""

    inputs: tuple[Tensor, ...]  # q, k, v
    found: tuple[Tensor, ...]  # their gradients, to be written
    dout: Tensor
    dlse: Tensor | None
    kept: Tensor | None


def _by_head(
    problem: Problem,
    tensors: tuple[Tensor, ...],
    dout: Tensor,
    dlse: Tensor | None,
    kept: Tensor | None,
) -> Iterator[_Part]:
    """All of a batch, few enough scores at a time."""
    if problem.layout == "bshd":
        tensors, dout = tuple(x.transpose(1, 2) for x in tensors), dout.transpose(1, 2)
    (batch, heads_q, seqlen_q, _), (_, heads_kv, seqlen_k, _) = tensors[0].shape, tensors[1].shape
    if not batch * heads_kv:
        return
    group = heads_q // heads_kv
    head_scores = max(1, group * seqlen_q * seqlen_k)
    heads = min(heads_kv, max(1, SCORES_AT_ONCE // head_scores))
    entries = max(1, SCORES_AT_ONCE // (head_scores * heads_kv))
    for b in range(0, batch, entries):
        for h in range(0, heads_kv, heads):
            of_q = slice(b, b + entries), slice(h * group, (h + heads) * group)
            of_kv = slice(b, b + entries), slice(h, h + heads)
            own = tuple(x[at] for x, at in zip(tensors, (of_q, of_kv, of_kv) * 2, strict=True))
            of_rows = (None if x is None else x[of_q] for x in (dlse, kept))
            yield _Part(own[:3], own[3:], dout[of_q], *of_rows)


def _by_sequence(
    tensors: tuple[Tensor, ...],
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    dout: Tensor,
    dlse: Tensor | None,
    kept: Tensor | None,
) -> Iterator[_Part]:
    """Packed sequences, one at a time."""

    def alone(x: Tensor, rows: slice) -> Tensor:
        return x[rows].transpose(0, 1).unsqueeze(0)

    bounds = zip(pairwise(cu_seqlens_q.tolist()), pairwise(cu_seqlens_k.tolist()), strict=True)
    for sequence, (queries, keys) in enumerate(bounds):
        of_q, of_k = slice(*queries), slice(*keys)
        own = tuple(alone(x, rows) for x, rows in zip(tensors, (of_q, of_k, of_k) * 2, strict=True))
        yield _Part(
            own[:3],
            own[3:],
            alone(dout, of_q),
            None if dlse is None else dlse[:, of_q].unsqueeze(0),
            None if kept is None else kept[sequence, :, : own[0].shape[2], : own[1].shape[2]].unsqueeze(0),
        )
