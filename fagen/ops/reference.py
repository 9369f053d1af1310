"""What the kernels must compute, in plain PyTorch: this module is the specification.

`attention` is exact (fp64 unless told otherwise); `plain_attention` is what an eager model would write in
the input dtype; `allowed_error` turns the error of the second into the tolerance for a kernel. 8-bit tensors
are what `reference_fp8.dequantized` says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from fagen.spec.model import Problem

ALLOWED_RELATIVE_ERROR = 6e-2  # of 8-bit kernels


def attention(
    problem: Problem,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    *,
    scale: float | None = None,
    dropout_p: float = 0.0,
    kept: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """Attention of `problem` on these very values, computed and returned in `dtype`.

    q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_k, heads_kv, head_dim] and
    v [batch, seqlen_k, heads_kv, head_dim_v] in the problem's layout, on any device. `scale` is
    1/sqrt(head_dim) if left out. Returns out [batch, seqlen_q, heads_q, head_dim_v] in the same layout, and
    the natural-log LSE [batch, heads_q, seqlen_q]. A query that sees no key has out 0 and LSE -inf.

    Layout thd: q [tokens_q, heads_q, head_dim], k and v [tokens_k, heads_kv, ...], the offsets of the
    sequences [sequences + 1]; LSE [heads_q, tokens_q]. A row of no sequence has out 0 and LSE -inf.

    `kept`, bool [batch, heads_q, seqlen_q, seqlen_k] by the longest sequences' lengths, says which elements
    of P a dropout of probability `dropout_p` keeps; see `dropout_mask.kept`. LSE is that without dropout.
    """
    if problem.layout == "thd":
        out = q.new_zeros((*q.shape[:2], problem.dim_v), dtype=dtype)
        lse = q.new_full((q.shape[1], q.shape[0]), -math.inf, dtype=dtype)
        for i, (rows, one) in enumerate(_sequences(q, k, v, cu_seqlens_q, cu_seqlens_k)):
            dropout = {"dropout_p": dropout_p, "kept": _of_sequence(kept, i, *one)}
            own_out, own_lse = attention(_alone(problem), *one, scale=scale, dtype=dtype, **dropout)
            out[rows], lse[:, rows] = own_out[0], own_lse[0]
        return out, lse
    q, k, v = _by_head(problem, q.to(dtype), k.to(dtype), v.to(dtype))
    scores = _capped(problem, _default_scale(problem, scale) * (q @ k.mT))
    scores = scores.masked_fill(~visible(problem, q.shape[-2], k.shape[-2], q.device), -math.inf)
    lse = scores.logsumexp(dim=-1)
    p = (scores - lse.masked_fill(lse == -math.inf, 0.0).unsqueeze(-1)).exp()
    return _in_layout(problem, _dropped(p, kept, dropout_p) @ v), lse


def plain_attention(
    problem: Problem,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    *,
    scale: float | None = None,
    dropout_p: float = 0.0,
    kept: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`attention` as an eager model writes it: in the input dtype, rounded at every step, with fp32 softmax.

    LSE is fp32.
    """
    if problem.layout == "thd":
        out = q.new_zeros((*q.shape[:2], problem.dim_v))
        lse = q.new_full((q.shape[1], q.shape[0]), -math.inf, dtype=torch.float32)
        for i, (rows, one) in enumerate(_sequences(q, k, v, cu_seqlens_q, cu_seqlens_k)):
            dropout = {"dropout_p": dropout_p, "kept": _of_sequence(kept, i, *one)}
            own_out, own_lse = plain_attention(_alone(problem), *one, scale=scale, **dropout)
            out[rows], lse[:, rows] = own_out[0], own_lse[0]
        return out, lse
    q, k, v = _by_head(problem, q, k, v)
    scores = _capped(problem, (_default_scale(problem, scale) * (q @ k.mT)).float())
    seen = visible(problem, q.shape[-2], k.shape[-2], q.device)
    scores = scores.masked_fill(~seen, -math.inf)
    p = scores.softmax(dim=-1)
    p = p.masked_fill(~seen, 0.0)  # a row that sees no key: softmax made it NaN
    return _in_layout(problem, _dropped(p, kept, dropout_p).to(v.dtype) @ v), scores.logsumexp(dim=-1)


def allowed_error(problem: Problem, plain: Tensor, exact: Tensor) -> float:
    """Largest `error` that `out` of a right kernel may have against `exact`, from `attention`.

    Twice the error of `plain`, from `plain_attention`, plus 1e-4 (fp16) or 4e-4 (bf16) times
    max(1, largest absolute exact value). With an 8-bit dtype ALLOWED_FP8_ERROR.
    """
    if problem.is_fp8:
        return ALLOWED_RELATIVE_ERROR
    plain_error, rounding = _errors(problem, plain, exact)
    return 2 * plain_error + rounding


def relative_error(found: Tensor, exact: Tensor) -> float:
    """The L2 norm of the error, as a share of that of `exact`; NaN where there is one."""
    return ((found.to(exact.dtype) - exact).norm() / exact.norm().clamp(min=1e-30)).item()


def allowed_gradient_error(problem: Problem, plain: Tensor, exact: Tensor) -> float:
    """The same of a gradient, with those of ops.reference_gradients: three times the one, ten the other."""
    plain_error, rounding = _errors(problem, plain, exact)
    return 3 * plain_error + 10 * rounding


def _errors(problem: Problem, plain: Tensor, exact: Tensor) -> tuple[float, float]:
    if exact.numel() == 0:
        return 0.0, 0.0
    rounding = {"fp16": 1e-4, "bf16": 4e-4}[problem.dtype]
    plain_error = (plain.to(exact.dtype) - exact).abs().max().item()
    return plain_error, rounding * max(1.0, exact.abs().max().item())


def visible(problem: Problem, seqlen_q: int, seqlen_k: int, device: torch.device | None = None) -> Tensor:
    """Which keys each query sees, bool [seqlen_q, seqlen_k]; masks are aligned to the bottom-right corner."""
    left, right = problem.window
    place = torch.arange(seqlen_q, device=device).unsqueeze(1) + seqlen_k - seqlen_q
    key = torch.arange(seqlen_k, device=device).unsqueeze(0)
    seen = torch.ones(seqlen_q, seqlen_k, dtype=torch.bool, device=device)
    if left is not None:
        seen &= key >= place - left
    if right is not None:
        seen &= key <= place + right
    return seen


def _sequences(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor | None, cu_seqlens_k: Tensor | None
) -> Iterator[tuple[slice, tuple[Tensor, Tensor, Tensor]]]:
    """Each packed sequence's rows of q, and its q, k and v as a batch of one in layout bshd."""
    assert cu_seqlens_q is not None and cu_seqlens_k is not None
    starts = zip(pairwise(cu_seqlens_q.tolist()), pairwise(cu_seqlens_k.tolist()), strict=True)
    for queries, keys in starts:
        rows, columns = slice(*queries), slice(*keys)
        yield rows, (q[rows].unsqueeze(0), k[columns].unsqueeze(0), v[columns].unsqueeze(0))


def _of_sequence(kept: Tensor | None, i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor | None:
    return None if kept is None else kept[i : i + 1, :, : q.shape[1], : k.shape[1]]


def _capped(problem: Problem, scores: Tensor) -> Tensor:
    cap = problem.softcap
    return scores if cap is None else cap * (scores / cap).tanh()


def _dropped(p: Tensor, kept: Tensor | None, dropout_p: float) -> Tensor:
    return p if kept is None else p.masked_fill(~kept, 0.0) / (1 - dropout_p)


def _alone(problem: Problem) -> Problem:
    return problem.model_copy(update={"layout": "bshd"})


def _default_scale(problem: Problem, scale: float | None) -> float:
    return problem.head_dim**-0.5 if scale is None else scale


def _by_head(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All as [batch, heads_q, seqlen, head_dim]; query head h uses K/V head h // (heads_q / heads_kv)."""
    if problem.layout == "bshd":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1] if k.shape[1] else 1
    return q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)


def _in_layout(problem: Problem, out: Tensor) -> Tensor:
    return out.transpose(1, 2) if problem.layout == "bshd" else out
