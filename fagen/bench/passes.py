"""A pass of attention as a call that can be timed: its forward alone, or its backward alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
