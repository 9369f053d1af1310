"""Standard attention, which writes S x S scores to memory, as a contender."""

from __future__ import annotations

import torch
from torch import Tensor

from fagen.bench.peers.adapter import Call, lengths, refuse_softcap, swap, window
from fagen.bench.standard import standard_attention
from fagen.spec.model import Problem

GB = 10**9


def standard(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """bench.standard; grouped K and V heads are repeated in the call, as models do."""
    there = swap("bhsd", problem)
    refuse_softcap(problem)
    sides = window(problem, lengths(problem, q, k)[0])
    if sides not in ((None, None), (None, 0)):
        raise RuntimeError("has no sliding window")
    q, k, v = there(q), there(k), there(v)
    _refuse_what_does_not_fit(q, k)
    group = q.shape[1] // k.shape[1]

    def call() -> Tensor:
        every = (k, v) if group == 1 else (x.repeat_interleave(group, 1) for x in (k, v))
        return there(standard_attention(q, *every, causal=sides == (None, 0)))

    return call


def _refuse_what_does_not_fit(q: Tensor, k: Tensor) -> None:
    """S and P in the dtype of q, and in a backward their gradients."""
    matrices = 4 if q.requires_grad else 2
    wanted = matrices * q.element_size() * q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    if wanted > (free := free_bytes(q.device)):
        raise RuntimeError(f"S x S does not fit: {wanted / GB:,.1f} GB wanted, {free / GB:,.1f} GB free")


def free_bytes(device: torch.device) -> int:
    """What torch can still allocate on a CUDA device."""
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + cached
