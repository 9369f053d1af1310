"""What the kernels must compute, in plain PyTorch: this module is the specification.

`attention` is exact (fp64 unless told otherwise); `plain_attention` is what an eager model would write in
the input dtype; `allowed_error` turns the error of the second into the tolerance for a kernel.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fagen.spec.model import Problem


def attention(
    problem: Problem,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """Attention of `problem` on these very values, computed and returned in `dtype`.

    q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_k, heads_kv, head_dim] and
    v [batch, seqlen_k, heads_kv, head_dim_v] in the problem's layout, on any device. `scale` is
    1/sqrt(head_dim) if left out. Returns out [batch, seqlen_q, heads_q, head_dim_v] in the same layout, and
    the natural-log LSE [batch, heads_q, seqlen_q]. A query that sees no key has out 0 and LSE -inf.
    """
    q, k, v = _by_head(problem, q.to(dtype), k.to(dtype), v.to(dtype))
    scores = _default_scale(problem, scale) * (q @ k.mT)
    scores = scores.masked_fill(~visible(problem, q.shape[-2], k.shape[-2], q.device), -math.inf)
    lse = scores.logsumexp(dim=-1)
    p = (scores - lse.masked_fill(lse == -math.inf, 0.0).unsqueeze(-1)).exp()
    return _in_layout(problem, p @ v), lse


def plain_attention(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None
) -> Tensor:
    """Eager attention in the input dtype with fp32 softmax: `out` of `attention`, rounded at every step."""
    q, k, v = _by_head(problem, q, k, v)
    scores = _default_scale(problem, scale) * (q @ k.mT)
    seen = visible(problem, q.shape[-2], k.shape[-2], q.device)
    p = scores.masked_fill(~seen, -math.inf).softmax(dim=-1, dtype=torch.float32)
    p = p.masked_fill(~seen, 0.0)  # a row that sees no key: softmax made it NaN
    return _in_layout(problem, p.to(v.dtype) @ v)


def allowed_error(problem: Problem, plain: Tensor, exact: Tensor) -> float:
    """Largest absolute error that `out` of a right kernel may have against `exact`, from `attention`.

    Twice the error of `plain`, from `plain_attention`, plus 1e-4 (fp16) or 4e-4 (bf16) times
    max(1, largest absolute exact value).
    """
    if exact.numel() == 0:
        return 0.0
    rounding = {"fp16": 1e-4, "bf16": 4e-4}[problem.dtype]
    plain_error = (plain.to(exact.dtype) - exact).abs().max().item()
    return 2 * plain_error + rounding * max(1.0, exact.abs().max().item())


def visible(problem: Problem, seqlen_q: int, seqlen_k: int, device: torch.device | None = None) -> Tensor:
    """Which keys each query sees, bool [seqlen_q, seqlen_k]; causal is aligned to the bottom-right corner."""
    if problem.mask == "none":
        return torch.ones(seqlen_q, seqlen_k, dtype=torch.bool, device=device)
    query = torch.arange(seqlen_q, device=device).unsqueeze(1)
    key = torch.arange(seqlen_k, device=device).unsqueeze(0)
    return key <= query + seqlen_k - seqlen_q


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
