"""PyTorch's scaled_dot_product_attention, by backend."""

from __future__ import annotations

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from fagen.bench.peers.adapter import Call, is_causal_from_the_top_left, refuse_softcap, swap
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
    causal = is_causal_from_the_top_left(problem, q, k)
    inputs = there(q), there(k), there(v)
    grouped = inputs[0].shape[1] != inputs[1].shape[1]

    def call() -> Tensor:
        with sdpa_kernel(backend):
            return there(scaled_dot_product_attention(*inputs, is_causal=causal, enable_gqa=grouped))

    return call
