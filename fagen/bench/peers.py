"""Other implementations of attention that a spec's op is compared with: one small adapter each.

An adapter is handed a problem and its q, k, v (as many queries as keys, as many K/V heads as query heads),
arranges them as its library wants them, and returns a call that gives out in the problem's layout, which
autograd can differentiate. It, or the first call, raises ImportError where the library is missing, and
RuntimeError or whatever the library raises where it cannot run the case.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from fagen.spec.model import Problem

Call = Callable[[], Any]
Adapter = Callable[[Problem, Tensor, Tensor, Tensor], Call]


def torch_flash(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """PyTorch's FlashAttention-2."""
    return _torch(SDPBackend.FLASH_ATTENTION, problem, q, k, v)


def torch_cudnn(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """cuDNN's attention, through PyTorch."""
    return _torch(SDPBackend.CUDNN_ATTENTION, problem, q, k, v)


def flash_attention_3(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """FlashAttention-3, as its own package has it."""
    return _flash_attention(import_module(FA3).flash_attn_func, -1, problem, q, k, v)


def flash_attention_4(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """FlashAttention-4, as its own package has it."""
    return _flash_attention(import_module(FA4).flash_attn_func, None, problem, q, k, v)


def _torch(backend: SDPBackend, problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    swap = _swaps("bhsd", problem)
    if problem.mask not in ("none", "causal"):
        raise RuntimeError("has no sliding window")
    inputs = swap(q), swap(k), swap(v)
    causal = problem.mask == "causal"  # top-left in torch: the same where there are as many queries as keys

    def call() -> Tensor:
        with sdpa_kernel(backend):
            return swap(scaled_dot_product_attention(*inputs, is_causal=causal))

    return call


def _flash_attention(
    function: Callable[..., Any], unbounded: int | None, problem: Problem, q: Tensor, k: Tensor, v: Tensor
) -> Call:
    swap = _swaps("bshd", problem)
    inputs = swap(q), swap(k), swap(v)
    causal = problem.window == (None, 0)
    sides = (None, None) if causal else problem.window
    window = tuple(unbounded if side is None else side for side in sides)

    def call() -> Tensor:
        found = function(*inputs, causal=causal, window_size=window)
        return swap(found[0] if isinstance(found, tuple) else found)  # some versions add the LSE

    return call


def _swaps(layout: str, problem: Problem) -> Callable[[Tensor], Tensor]:
    """From the problem's layout to this one, and back; a view, the same memory that the op reads."""
    if problem.layout == "thd":
        raise RuntimeError("is not compared on packed sequences")
    return (lambda x: x) if problem.layout == layout else (lambda x: x.transpose(1, 2))


PEERS: dict[str, Adapter] = {
    "torch flash": torch_flash,
    "torch cuDNN": torch_cudnn,
    "FA3": flash_attention_3,
    "FA4": flash_attention_4,
}
FA3, FA4 = "flash_attn_interface", "flash_attn.cute"
_MODULES = {"FA3": FA3, "FA4": FA4}


def installed() -> dict[str, Adapter]:
    """Those of PEERS whose library is there."""
    return {name: adapter for name, adapter in PEERS.items() if _is_there(_MODULES.get(name, "torch"))}


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # of the package that it is in
        return False
