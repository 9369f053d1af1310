"""Other implementations of attention that a spec's op is compared with: one small adapter each.

An adapter is handed a problem and its q, k, v (as many queries as keys, as many K/V heads as query heads),
arranges them as its library wants them, and returns a call that gives out in the problem's layout. It, or the
first call, raises ImportError where the library is missing and RuntimeError where it cannot run the case.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from fagen.spec.model import Problem

Call = Callable[[], Tensor]


def torch_flash(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """PyTorch's FlashAttention-2."""
    return _torch(SDPBackend.FLASH_ATTENTION, problem, q, k, v)


def torch_cudnn(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """cuDNN's attention, through PyTorch."""
    return _torch(SDPBackend.CUDNN_ATTENTION, problem, q, k, v)


def _torch(backend: SDPBackend, problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    def by_head(x: Tensor) -> Tensor:  # and back; a view, the same memory that the op reads
        return x.transpose(1, 2) if problem.layout == "bshd" else x

    if problem.layout == "thd":
        raise RuntimeError("takes no packed sequences")
    if problem.mask not in ("none", "causal"):
        raise RuntimeError("has no sliding window")
    inputs = by_head(q), by_head(k), by_head(v)
    causal = problem.mask == "causal"  # top-left in torch: the same where there are as many queries as keys

    def call() -> Tensor:
        with sdpa_kernel(backend):
            return by_head(scaled_dot_product_attention(*inputs, is_causal=causal))

    return call


PEERS: dict[str, Callable[[Problem, Tensor, Tensor, Tensor], Call]] = {
    "torch flash": torch_flash,
    "torch cuDNN": torch_cudnn,
}
