"""What an op of 8-bit q, k and v accepts of their descales; see plan.descales for what those are.

`check_descales` looks at what a fake tensor has too; values are looked at only where `metadata` says so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fagen.errors import ArgumentError
from fagen.ops.metadata import is_checked
from fagen.plan.descales import Step, axes, sizes
from fagen.plan.launch import Shape
from fagen.spec.model import Problem


class Descales(NamedTuple):
    """What q, k and v are to be multiplied by, fp32: what an op of 8-bit tensors takes beside them."""

    q_descale: Tensor
    k_descale: Tensor
    v_descale: Tensor


def given_descales(problem: Problem, *given: Any) -> Descales | None:
    """The three, or None where an op takes none. Raises ArgumentError for one too few or too many."""
    for name, x in zip(Descales._fields, given, strict=True):
        if problem.is_fp8 and x is None:
            raise ArgumentError(
                f"{name}: is missing; {name[0]} means nothing without (problem.dtype: {problem.dtype}); "
                f"allowed: a torch.Tensor, torch.float32, {_allowed_axes(problem, name)}"
            )
        if not problem.is_fp8 and x is not None:
            raise ArgumentError(
                f"{name}: is given, but {name[0]} was never quantised (problem.dtype: {problem.dtype}); "
                "allowed: leaving it out"
            )
    return Descales(*given) if problem.is_fp8 else None


def check_descales(problem: Problem, descales: Descales, shape: Shape, like: Tensor) -> None:
    """Type, layout, device, dtype, sizes and strides; any descale may be anything. Raises ArgumentError."""
    for name, x in descales._asdict().items():
        if not isinstance(x, Tensor) or x.layout is not torch.strided:
            found = f"has layout {x.layout}" if isinstance(x, Tensor) else f"is a {type(x).__name__}"
            raise ArgumentError(f"{name}: {found}; allowed: a torch.Tensor with layout torch.strided")
        if x.dtype != torch.float32:
            raise ArgumentError(f"{name}: is {x.dtype}; allowed: torch.float32 (use {name}.float())")
        if x.device != like.device:
            raise ArgumentError(f"{name}: is on {x.device}; allowed: {like.device}, as q")
        expected = torch.Size(sizes(problem, name, shape))
        if x.shape != expected and not (_may_be_one(problem) and x.shape == (1,)):
            raise ArgumentError(
                f"{name}: has shape {_text(x.shape)}; allowed: {_text(expected)}, that is "
                f"{_allowed_axes(problem, name)}"
            )
        if problem.scales_blocks and x.shape[-1] > 1 and x.stride(-1) != 1:
            raise ArgumentError(
                f"{name}: stride of its last dimension is {x.stride(-1)}; allowed: 1 "
                f"(use {name}.contiguous())"
            )


def check_descale_values(descales: Descales) -> None:
    """That none is below 0, infinite or NaN, if metadata is checked: waits for the GPU.

    Raises ArgumentError.
    """
    if not is_checked():
        return
    for name, x in descales._asdict().items():
        wrong = ~(x.isfinite() & (x >= 0))
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise ArgumentError(f"{name}: is {x[at].item()} at {at}; allowed: finite numbers from 0")


def step_of(x: Tensor) -> Step:
    """How to step in a descale that passed `check_descales`."""
    return Step(0, 0) if x.dim() == 1 else Step(x.stride(0), x.stride(1))


def _may_be_one(problem: Problem) -> bool:
    return not problem.scales_blocks


def _allowed_axes(problem: Problem, name: str) -> str:
    one = ", or (1,), one for all" if _may_be_one(problem) else ""
    scale = "block" if problem.scales_blocks else "head"
    return f"({', '.join(axes(problem, name))}){one} (problem.fp8.scale: {scale})"


def _text(sizes: Any) -> str:
    return f"({', '.join(map(str, sizes))})"
