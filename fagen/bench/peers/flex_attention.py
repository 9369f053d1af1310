"""PyTorch's FlexAttention: its kernel is compiled for the problem's mask and soft cap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._functorch import config as functorch_config
from torch.nn.attention.flex_attention import BlockMask, and_masks, create_block_mask, flex_attention

from fagen.bench.peers.adapter import Call, lengths, swap, window
from fagen.spec.model import Problem

BLOCK = 128  # rows and keys of a block of the mask


def flex(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """FlexAttention, with blocks left out that the mask hides."""
    there = swap("bhsd", problem)
    inputs = there(q), there(k), there(v)
    # Each case is compiled anew, for its sizes alone. After a few in one process torch would stop compiling.
    torch.compiler.reset()
    functorch_config.donated_buffer = (
        False  # a backward that is timed runs many times on what one forward kept
    )
    options: dict[str, Any] = {
        "score_mod": None if problem.softcap is None else _capped(problem.softcap),
        "block_mask": _block_mask(problem, *lengths(problem, q, k), q.device),
        "enable_gqa": inputs[0].shape[1] != inputs[1].shape[1],
        "kernel_options": _kernel_options(inputs[0], inputs[1]),
    }
    attend = torch.compile(flex_attention, dynamic=False)
    return lambda: there(attend(*inputs, **options))


def _kernel_options(q: Tensor, k: Tensor) -> dict[str, Any] | None:
    """Without the kernel for short queries where it cannot be.

    That one's tile has all queries of a group, and torch finds no kernel where it is larger than a block.
    """
    group = q.shape[1] // k.shape[1]
    return {"FORCE_USE_FLEX_ATTENTION": True} if group * q.shape[2] > BLOCK else None


def _capped(softcap: float) -> Callable[..., Tensor]:
    return lambda score, b, h, i, j: softcap * torch.tanh(score / softcap)


def _block_mask(problem: Problem, seqlen_q: int, seqlen_k: int, device: torch.device) -> BlockMask | None:
    left, right = window(problem, seqlen_q)
    offset = seqlen_k - seqlen_q  # the mask is aligned bottom-right
    sides: list[Callable[..., Tensor]] = []
    if left is not None:
        sides.append(lambda b, h, i, j: j >= i + offset - left)
    if right is not None:
        sides.append(lambda b, h, i, j: j <= i + offset + right)
    if not sides:
        return None
    # Compiled: written out, the mask would have S x S elements.
    make = torch.compile(create_block_mask, dynamic=False)
    return make(and_masks(*sides), None, None, seqlen_q, seqlen_k, device=device, BLOCK_SIZE=BLOCK)
