"""Ops as torch.ops.fagen.<name>: schema, kernel, fake kernel and autograd, so that traced graphs keep them.

Raw `torch.library` registrations; each name is one spec for as long as the process lives, because graphs
that were traced with the name refer to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fagen.errors import ArgumentError
from fagen.ops.checks import BATCH_ROW_HEAD, Device, check_tensors
from fagen.spec.model import Problem, Spec

Run = Callable[[Tensor, Tensor, Tensor, float | None], tuple[Tensor, Tensor]]

_LIBRARY = torch.library.Library("fagen", "FRAGMENT")
_LOCK = Lock()
_specs: dict[str, Spec] = {}  # by op name, without what to tune


def register(name: str, spec: Spec, run: Run, device: Device = None) -> OpOverload:
    """The op `fagen::name(q, k, v, scale=None) -> (out, lse)`, computed by `run`; defined on first use.

    `device` is the op's (see ops.checks). A second registration with an equal spec returns the first one's
    op. Raises ArgumentError if `name` already stands for a spec that differs in anything but `tune`.
    """
    spec = spec.model_copy(update={"tune": {}})
    with _LOCK:
        if name not in _specs:
            _define(name, spec.problem, run, device)
            _specs[name] = spec
        elif _specs[name] != spec:
            found = "; ".join(_differences("", _specs[name].model_dump(), spec.model_dump()))
            raise ArgumentError(
                f"name: torch.ops.fagen.{name} is already an op with another spec ({found}); "
                "allowed: one spec per name in a process (give this one another name)"
            )
    return getattr(torch.ops.fagen, name).default


def _define(name: str, problem: Problem, run: Run, device: Device) -> None:
    _LIBRARY.define(
        f"{name}(Tensor q, Tensor k, Tensor v, float? scale=None) -> (Tensor out, Tensor lse)",
        # Strides and alignment of q, k and v are checked, so a compiler must not choose others.
        tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides),
    )
    # For every device: a tensor that is on the wrong one gets the op's own error.
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")

    def fake(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> tuple[Tensor, Tensor]:
        check_tensors(problem, q, k, v, device)
        batch, row, head = BATCH_ROW_HEAD[problem.layout]
        lse = q.new_empty((q.shape[batch], q.shape[head], q.shape[row]), dtype=torch.float32)
        return q.new_empty((*q.shape[:3], problem.dim_v)), lse

    def backward(ctx: Any, *grads: Tensor) -> None:
        raise ArgumentError(
            f"q, k, v: require grad, but {name} has no backward (problem.passes: {list(problem.passes)}); "
            "call it under torch.no_grad() or on detached tensors"
        )

    torch.library.register_fake(f"fagen::{name}", fake, lib=_LIBRARY)
    torch.library.register_autograd(f"fagen::{name}", backward, lib=_LIBRARY)


def _differences(key: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for part in old:
            yield from _differences(f"{key}.{part}" if key else part, old[part], new.get(part))
    elif old != new:
        yield f"{key}: {old!r} there, {new!r} here"
