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
from fagen.ops.checks import Device, check_tensors
from fagen.ops.layout import Packing, result_sizes
from fagen.ops.packing import check_packing
from fagen.spec.model import Problem, Spec

# (q, k, v, packing, scale); no packing in batched layouts.
Run = Callable[[Tensor, Tensor, Tensor, Packing | None, float | None], tuple[Tensor, Tensor]]

_PACKING = "Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt max_seqlen_q, SymInt max_seqlen_k, "

_LIBRARY = torch.library.Library("fagen", "FRAGMENT")
_LOCK = Lock()
_specs: dict[str, Spec] = {}  # by op name, without what to tune


def register(name: str, spec: Spec, run: Run, device: Device = None) -> OpOverload:
    """The op `fagen::name(q, k, v, scale=None) -> (out, lse)`, computed by `run`; defined on first use.

    With packed sequences it takes the fields of Packing after v. `device` is the op's (see ops.checks). A
    second registration with an equal spec returns the first one's op. Raises ArgumentError if `name` already
    stands for a spec that differs in anything but `tune`.
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
    packed = problem.layout == "thd"
    _LIBRARY.define(
        f"{name}(Tensor q, Tensor k, Tensor v, {_PACKING if packed else ''}float? scale=None) "
        "-> (Tensor out, Tensor lse)",
        # Strides and alignment of q, k and v are checked, so a compiler must not choose others.
        tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides),
    )

    def fake(
        q: Tensor, k: Tensor, v: Tensor, packing: Packing | None, scale: float | None
    ) -> tuple[Tensor, Tensor]:
        check_tensors(problem, q, k, v, device)
        if packing is not None:
            check_packing(packing, q)
        out_sizes, lse_sizes = result_sizes(problem, q)
        return q.new_empty(out_sizes), q.new_empty(lse_sizes, dtype=torch.float32)

    with_schema = _packed if packed else _batched
    # For every device: a tensor that is on the wrong one gets the op's own error.
    _LIBRARY.impl(name, with_schema(run), "CompositeExplicitAutograd")
    torch.library.register_fake(f"fagen::{name}", with_schema(fake), lib=_LIBRARY)

    def backward(ctx: Any, *grads: Tensor) -> None:
        raise ArgumentError(
            f"q, k, v: require grad, but {name} has no backward (problem.passes: {list(problem.passes)}); "
            "call it under torch.no_grad() or on detached tensors"
        )

    torch.library.register_autograd(f"fagen::{name}", backward, lib=_LIBRARY)


def _batched(run: Run) -> Callable[..., tuple[Tensor, Tensor]]:
    def with_schema(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> tuple[Tensor, Tensor]:
        return run(q, k, v, None, scale)

    return with_schema


def _packed(run: Run) -> Callable[..., tuple[Tensor, Tensor]]:
    def with_schema(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        scale: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        return run(q, k, v, Packing(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k), scale)

    return with_schema


def _differences(key: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for part in old:
            yield from _differences(f"{key}.{part}" if key else part, old[part], new.get(part))
    elif old != new:
        yield f"{key}: {old!r} there, {new!r} here"
