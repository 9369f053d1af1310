"""Random q, k and v on which the accuracy of attention is measured, before any rounding."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fagen.plan.launch import Shape
from fagen.spec.model import Problem

Draw = Callable[[tuple[int, ...], torch.Generator], Tensor]

OUTLIERS, OUTLIER_STD = 0.001, 10.0  # the share of elements with an outlier, and its standard deviation


def normal(sizes: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """normal(0, 1)."""
    return torch.randn(sizes, generator=generator, device=generator.device)


def outliers(sizes: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """normal(0, 1) + normal(0, 100) * Bernoulli(0.001): section 4.3 of the FlashAttention-3 paper."""
    has_one = torch.rand(sizes, generator=generator, device=generator.device) < OUTLIERS
    return normal(sizes, generator) + OUTLIER_STD * normal(sizes, generator) * has_one


def shifted(sizes: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """normal(1, 1): sums of many terms of one sign, which short accumulators cut."""
    return normal(sizes, generator) + 1.0


DISTRIBUTIONS: dict[str, Draw] = {draw.__name__: draw for draw in (normal, outliers, shifted)}


def draw_inputs(
    draw: Draw, problem: Problem, shape: Shape, seed: int, device: str
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v in fp32, in the problem's layout, bshd or bhsd; v not transposed."""
    generator = torch.Generator(device).manual_seed(seed)

    def tensor(length: int, heads: int, dim: int) -> Tensor:
        inner = (length, heads) if problem.layout == "bshd" else (heads, length)
        return draw((shape.batch, *inner, dim), generator)

    return (
        tensor(shape.seqlen_q, shape.heads_q, problem.head_dim),
        tensor(shape.seqlen_k, shape.heads_kv, problem.head_dim),
        tensor(shape.seqlen_k, shape.heads_kv, problem.dim_v),
    )
