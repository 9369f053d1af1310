"""PyTorch's scaled_dot_product_attention, by backend."""

from __future__ import annotations

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from fagen.bench.peers.adapter import Call, lengths, refuse_softcap, swap, window
from fagen.spec.model import Problem


def torch_flash(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """PyTorch's FlashAttention-2."""
    return _sdpa(SDPBackend.FLASH_ATTENTION, problem, q, k, v)


def torch_cudnn(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """cuDNN's attention, through PyTorch."""
    return _sdpa(SDPBackend.CUDNN_ATTENTION, problem, q, k, v)


def _sdpa(backend: SDPBackend, problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    there = swap("bhsd", problem)
    refuse_softcap(problem)
    seqlen_q, seqlen_k = lengths(problem, q, k)
    sides = window(problem, seqlen_q)
    if sides not in ((None, None), (None, 0)):
        raise RuntimeError("has no sliding window")
    causal = sides == (None, 0)
    if causal and seqlen_q != seqlen_k:
        raise RuntimeError("its causal mask is aligned top-left, not bottom-right")
    inputs = there(q), there(k), there(v)
    grouped = inputs[0].shape[1] != inputs[1].shape[1]

    def call() -> Tensor:
        with sdpa_kernel(backend):
            return there(scaled_dot_product_attention(*inputs, is_causal=causal, enable_gqa=grouped))

    return call
