"""From the tensors and arguments of a call to what decides which kernel is best."""

from __future__ import annotations

import functools
import reprlib
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from fagen.errors import ArgumentError
from fagen.hw.dtypes import DTYPES
from fagen.ops.checks import check_are_tensors, check_tensors
from fagen.ops.layout import Packing, shape_of
from fagen.ops.packing import refuse_packing
from fagen.plan.launch import Shape
from fagen.spec.model import Problem
from fagen.spec.problem import problem_issues
from fagen.spec.tree import from_python

Window = tuple[int | None, int | None]  # the keys that a query sees before and after its place; None: all
Mask = str | Window
WINDOWS: dict[str, Window] = {"none": (None, None), "causal": (None, 0)}

UNPACKED = (None,) * len(Packing._fields)
_NAMES = {getattr(torch, dtype.torch): dtype.name for dtype in DTYPES.values() if dtype.bytes > 1}
_ALLOWED = {
    "softcap": "a positive float, or None",
    "layout": "bshd, bhsd, thd, or None",
    "deterministic": "True, False, or None for torch's own setting",
}
_MASKS = {window: name for name, window in WINDOWS.items()}


@dataclass(frozen=True)
class Request:
    """What of a call decides which kernel is best."""

    problem: Problem
    shape: Shape
    trains: bool  # whether gradients will be asked for
    device: torch.device

    @property
    def passes(self) -> tuple[str, ...]:
        """What is to be fast."""
        return ("forward", "backward") if self.trains else ("forward",)


def request_of(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packing: tuple[Any, ...],
    mask: Mask,
    softcap: float | None,
    dropout: bool,
    layout: str | None,
    deterministic: bool,
    trains: bool,
) -> Request:
    """The request of a call. `packing` has the fields of Packing, UNPACKED for sequences of one length.

    Raises ArgumentError for whatever no kernel takes: types, devices, dtypes, sizes, values.
    """
    check_are_tensors(q, k, v)
    if q.dtype not in _NAMES:
        allowed = ", ".join(map(str, _NAMES))
        raise ArgumentError(
            f"dtype: q is {q.dtype}; allowed: {allowed}, for all three (8-bit tensors, which come with "
            "descales, are for the op of a spec: fagen.load)"
        )
    is_packed = packing[:2] != (None, None) if layout is None else layout == "thd"
    layout = ("thd" if is_packed else "bshd") if layout is None else layout
    dim, dim_v = (x.shape[-1] if x.dim() else 0 for x in (q, v))
    window = tuple(None if side is None else int(side) for side in window_of(mask))
    for name, value in {"softcap": softcap, "layout": layout, "deterministic": deterministic}.items():
        if not (value is None or isinstance(value, str | Real)):
            raise ArgumentError(f"{name}: is a {type(value).__name__}; allowed: {_ALLOWED[name]}")
    problem = _problem(_NAMES[q.dtype], int(dim), int(dim_v), layout, window, softcap, dropout, deterministic)
    if not is_packed and packing != UNPACKED:
        refuse_packing(problem, packing)
    packed = Packing(*packing) if is_packed else None
    check_tensors(problem, q, k, v, packed)
    return Request(problem, shape_of(problem, q, k, packed), trains, q.device)


def window_of(mask: Any) -> Window:
    """The mask as a window. Raises ArgumentError."""
    if isinstance(mask, str) and mask in WINDOWS:
        return WINDOWS[mask]
    if (
        isinstance(mask, tuple)
        and len(mask) == 2
        and all(side is None or isinstance(side, int) for side in mask)
    ):
        return mask
    raise ArgumentError(
        f'mask: is {reprlib.repr(mask)}; allowed: "none", "causal", or a window, a pair of ints (left, '
        "right): the keys seen before and after a query's place, None: all"
    )


@functools.lru_cache(maxsize=1024)
def _problem(
    dtype: str,
    head_dim: int,
    head_dim_v: int,
    layout: str,
    window: Window,
    softcap: float | None,
    dropout: bool,
    deterministic: bool,
) -> Problem:
    keys: dict[str, Any] = {
        "dtype": dtype,
        "head_dim": head_dim,
        "head_dim_v": None if head_dim_v == head_dim else head_dim_v,
        "layout": layout,
        "mask": _MASKS.get(window, {"window": window}),
        "softcap": softcap,
        "dropout": dropout,
        "deterministic": deterministic,
    }
    issues = problem_issues(from_python(keys, "the call"), "problem")
    if issues:
        raise ArgumentError(
            "\n".join(f"{issue.key.removeprefix('problem.')}: {issue.message}" for issue in issues)
        )
    return Problem.model_validate(keys)
