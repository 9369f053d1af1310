"""xFormers' memory_efficient_attention, with the kernel that it chooses itself."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor

from fagen.bench.peers.adapter import Call, refuse_softcap, swap, window
from fagen.spec.model import Problem

XFORMERS = "xformers"


def memory_efficient(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """xFormers; grouped heads as an axis of their own, along which K and V are expanded views."""
    there = swap("bshd", problem)
    refuse_softcap(problem)
    attend = import_module(f"{XFORMERS}.ops").memory_efficient_attention
    q, k, v = there(q), there(k), there(v)
    heads_q, heads_kv = q.shape[2], k.shape[2]
    grouped = heads_q != heads_kv
    if grouped:
        group = heads_q // heads_kv
        q = q.unflatten(2, (heads_kv, group))
        k, v = (x.unsqueeze(3).expand(-1, -1, -1, group, -1) for x in (k, v))
    bias = _bias(problem, q.shape[1], k.shape[1])

    def call() -> Tensor:
        out = attend(q, k, v, attn_bias=bias)
        return there(out.flatten(2, 3) if grouped else out)

    return call


def _bias(problem: Problem, seqlen_q: int, seqlen_k: int) -> Any:
    left, right = window(problem, seqlen_q)
    if (left, right) == (None, None):
        return None
    biases = import_module(f"{XFORMERS}.ops.fmha.attn_bias")
    if (left, right) == (None, 0):
        return biases.LowerTriangularFromBottomRightMask()
    all_keys = seqlen_q + seqlen_k
    return biases.LocalAttentionFromBottomRightMask(
        window_left=all_keys if left is None else left, window_right=all_keys if right is None else right
    )
