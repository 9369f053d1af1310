"""The descales of 8-bit q, k and v: what q, k and v stand for is themselves times these, fp32.

One for each K/V head of a sequence, which its query heads share, or one for each block of rows of a head.
"""

from __future__ import annotations

from typing import NamedTuple

from fagen.plan.launch import Shape
from fagen.plan.params import Param
from fagen.spec.model import Problem

DESCALES = ("q_descale", "k_descale", "v_descale")


class Step(NamedTuple):
    """Elements between neighbours; 0: one for all. A head's blocks are adjacent."""

    batch: int
    head: int


def pointers(problem: Problem) -> tuple[Param, ...]:
    """Where the descales are; none of a 16-bit problem."""
    return tuple(
        Param(
            name,
            "const float*",
            f"[{', '.join(axes(problem, name))}]: {name[0]} stands for {name[0]} times these",
        )
        for name in _given(problem)
    )


def strides(problem: Problem) -> tuple[Param, ...]:
    """How to step in them; none of a 16-bit problem."""
    return tuple(
        Param(f"{name}_{axis}_stride", "int64_t", f"elements between neighbours of {name} along {axis}")
        for name in _given(problem)
        for axis in Step._fields
    )


def axes(problem: Problem, name: str) -> tuple[str, ...]:
    """What a descale's dimensions are, in words."""
    fp8 = problem.fp8
    if fp8 is None or fp8.scale == "head":
        return "batch", "heads_kv"
    head, length = ("heads_q", "seqlen_q") if name == "q_descale" else ("heads_kv", "seqlen_k")
    return "batch", head, f"ceil({length} / {fp8.block})"


def sizes(problem: Problem, name: str, shape: Shape) -> tuple[int, ...]:
    """A descale's sizes, by the same dimensions."""
    fp8 = problem.fp8
    if fp8 is None or fp8.scale == "head":
        return shape.batch, shape.heads_kv
    head, length = (
        (shape.heads_q, shape.seqlen_q) if name == "q_descale" else (shape.heads_kv, shape.seqlen_k)
    )
    return shape.batch, head, -(-length // fp8.block)


def extent(problem: Problem, name: str, shape: Shape, step: Step) -> int:
    """Elements from a descale's first to its last, both included."""
    batch, head, *blocks = sizes(problem, name, shape)
    return (batch - 1) * step.batch + (head - 1) * step.head + (blocks[0] if blocks else 1)


def _given(problem: Problem) -> tuple[str, ...]:
    return DESCALES if problem.is_fp8 else ()
