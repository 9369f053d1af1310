"""Attention as a call that can be timed: its forward alone, its backward alone, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Attention = Callable[[], Tensor]  # gives out for inputs that it holds


def forward(attention: Attention) -> Attention:
    """`attention`, which then keeps nothing for a backward."""
    return torch.no_grad()(attention)


def backward(
    attention: Attention, inputs: Sequence[Tensor], dout: Tensor
) -> Callable[[], tuple[Tensor, ...]]:
    """The gradients of `inputs`, which `attention` reads, for `dout`; the forward runs here, once for all."""
    for x in inputs:
        x.requires_grad_()
    out = attention()
    return lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)


def forward_and_backward(
    attention: Attention, inputs: Sequence[Tensor], dout: Tensor
) -> Callable[[], tuple[Tensor, ...]]:
    """out, and the gradients of `inputs`, which `attention` reads, for `dout`."""
    for x in inputs:
        x.requires_grad_()

    def call() -> tuple[Tensor, ...]:
        out = attention()
        return out, *torch.autograd.grad(out, inputs, dout)

    return call


def in_mode(mode: str, attention: Attention, inputs: Sequence[Tensor], dout: Tensor) -> Callable[[], Any]:
    """What is timed of `attention` in a mode, a key of modes.MODES."""
    match mode:
        case "fwd":
            return forward(attention)
        case "bwd":
            return backward(attention, inputs, dout)
        case _:
            return forward_and_backward(attention, inputs, dout)
