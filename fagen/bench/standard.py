"""Standard attention as three kernels of PyTorch: what every generation is measured against."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def standard_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """softmax(q k^T / sqrt(head_dim)) v [batch, heads, seqlen_q, head_dim_v], differentiable by autograd.

    q, k, v [batch, heads, sequence, columns], contiguous, as many K/V heads as query heads, of one dtype,
    which S and P have as well: both are written to memory and read again. `causal` is aligned bottom-right.
    """
    flat_q, flat_k, flat_v = (x.flatten(0, 1) for x in (q, k, v))
    scores = torch.bmm(flat_q / math.sqrt(q.shape[-1]), flat_k.mT)
    if causal:
        hidden = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device)
        scores.masked_fill_(hidden.triu_(1 + k.shape[2] - q.shape[2]), -math.inf)
    return torch.bmm(scores.softmax(-1), flat_v).unflatten(0, q.shape[:2])
