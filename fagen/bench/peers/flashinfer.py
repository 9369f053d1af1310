"""FlashInfer: batch prefill on ragged tensors, and for a single query batch decode on a paged cache."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from fagen.bench.peers.adapter import Call, swap, window
from fagen.spec.model import Problem

FLASHINFER = "flashinfer"
WORKSPACE_BYTES = 128 * 2**20  # what its documentation recommends
PAGE = 16  # rows of a page of the cache, likewise


def batch(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """FlashInfer, its plan made beforehand; it has no backward."""
    there = swap("bshd", problem)
    if q.requires_grad:
        raise RuntimeError("has no backward")
    q, k, v = there(q), there(k), there(v)
    left, right = window(problem, q.shape[1])
    if right not in (None, 0):
        raise RuntimeError("has no window to the right")
    options: dict[str, Any] = {
        "window_left": -1 if left is None else left,
        "logits_soft_cap": problem.softcap,
        "q_data_type": q.dtype,
        "kv_data_type": k.dtype,
    }
    if q.shape[1] == 1 and k.shape[1] % PAGE == 0 and problem.dim_v == problem.head_dim:
        return _decode(options, q, k, v, there)
    return _prefill(options, right == 0, q, k, v, there)


def _prefill(options: dict[str, Any], causal: bool, q: Tensor, k: Tensor, v: Tensor, there: Any) -> Call:
    wrapper = import_module(FLASHINFER).BatchPrefillWithRaggedKVCacheWrapper(_workspace(q), "NHD")
    wrapper.plan(
        _starts(q, q.shape[1]),
        _starts(q, k.shape[1]),
        num_qo_heads=q.shape[2],
        num_kv_heads=k.shape[2],
        head_dim_qk=q.shape[3],
        head_dim_vo=v.shape[3],
        causal=causal,
        **options,
    )
    rows = [x.flatten(0, 1) for x in (q, k, v)]
    return lambda: there(wrapper.run(*rows).unflatten(0, q.shape[:2]))


def _decode(options: dict[str, Any], q: Tensor, k: Tensor, v: Tensor, there: Any) -> Call:
    """The same K and V, taken as pages that follow each other."""
    batch_size, pages = k.shape[0], k.shape[1] // PAGE
    wrapper = import_module(FLASHINFER).BatchDecodeWithPagedKVCacheWrapper(
        _workspace(q), "NHD", use_tensor_cores=q.shape[2] != k.shape[2]
    )
    wrapper.plan(
        _starts(q, pages),
        torch.arange(batch_size * pages, dtype=torch.int32, device=q.device),
        torch.full((batch_size,), PAGE, dtype=torch.int32, device=q.device),
        q.shape[2],
        k.shape[2],
        q.shape[3],
        PAGE,
        **options,
    )
    cache = tuple(x.reshape(batch_size * pages, PAGE, *x.shape[2:]) for x in (k, v))
    rows = q.flatten(0, 1)
    return lambda: there(wrapper.run(rows, cache).unflatten(0, q.shape[:2]))


def _workspace(q: Tensor) -> Tensor:
    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)


def _starts(q: Tensor, length: int) -> Tensor:
    """Where each of the batch's sequences starts, and the last one's end: int32 [batch + 1]."""
    return length * torch.arange(q.shape[0] + 1, dtype=torch.int32, device=q.device)
