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
from fagen.ops.backward import Backward, Gradients, Inputs
from fagen.ops.checks import Device, check_tensor, check_tensors, out_dtype
from fagen.ops.forward import Forward
from fagen.ops.layout import result_sizes
from fagen.ops.schema import Schema
from fagen.spec.model import Spec

_LIBRARY = torch.library.Library("fagen", "FRAGMENT")
_LOCK = Lock()
_specs: dict[str, Spec] = {}  # by op name, without what to tune


def register(
    name: str, spec: Spec, forward: Forward, backward: Backward | None, device: Device = None
) -> OpOverload:
    """The op `fagen::name`, see `Schema.forward`, computed by `forward`; defined on first use.

    With a backward, `fagen::name_backward` is its gradient. `device` is the op's (see ops.checks). A second
    registration with an equal spec returns the first one's op. Raises ArgumentError if one of the names
    already stands for a spec that differs in anything but `tune`.
    """
    spec = spec.model_copy(update={"tune": {}})
    gradient = f"{name}_backward"
    names = [name] if backward is None else [name, gradient]
    with _LOCK:
        for own in names:
            if _specs.get(own, spec) != spec:
                found = "; ".join(_differences("", _specs[own].model_dump(), spec.model_dump()))
                raise ArgumentError(
                    f"name: torch.ops.fagen.{own} is already an op with another spec ({found}); "
                    "allowed: one spec per name in a process (give this one another name)"
                )
        if name not in _specs:
            _define_forward(name, spec, forward, device)
            if backward is None:
                _refuse_autograd(name, spec)
            else:
                _define_backward(gradient, spec, backward)
                _define_autograd(name, gradient, Schema(spec))
            _specs.update(dict.fromkeys(names, spec))
    return getattr(torch.ops.fagen, name).default


def _define_forward(name: str, spec: Spec, forward: Forward, device: Device) -> None:
    schema, problem = Schema(spec), spec.problem

    def run(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        packing, descales, seed, _, options = schema.read(rest, backward=False)
        _check_seed(seed, q)
        return tuple(x for x in forward(q, k, v, packing, descales, seed, *options) if x is not None)

    def fake(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        packing, descales, seed, *_ = schema.read(rest, backward=False)
        check_tensors(problem, q, k, v, packing, device, descales)
        _check_seed(seed, q)
        out_sizes, lse_sizes = result_sizes(problem, q)
        row_stats = [(2, *lse_sizes)] if schema.has_row_stats else []
        in_fp32 = (q.new_empty(sizes, dtype=torch.float32) for sizes in (lse_sizes, *row_stats))
        return q.new_empty(out_sizes, dtype=out_dtype(problem)), *in_fp32

    define(schema.forward(name), run, fake)


def _check_seed(seed: Tensor | None, q: Tensor) -> None:
    if seed is not None:
        check_tensor("seed", seed, (1,), torch.int64, q)


def _define_backward(name: str, spec: Spec, backward: Backward) -> None:
    schema = Schema(spec)

    def read(args: tuple[Any, ...]) -> tuple[Inputs, tuple[Any, ...]]:
        dout, dlse, q, k, v, out, lse, *others = args
        packing, _, seed, row_stats, options = schema.read(others, backward=True)
        return Inputs(dout, dlse, q, k, v, out, lse, packing, seed, row_stats), options

    def run(*args: Any) -> Gradients:
        given, options = read(args)
        return backward(given, *options)

    def fake(*args: Any) -> Gradients:
        given, _ = read(args)
        backward.check(given)
        dq, dk, dv = (x.new_empty(x.shape) for x in (given.q, given.k, given.v))
        return dq, dk, dv

    define(schema.backward(name), run, fake)
    refuse_second_derivatives(name, spec.name)


def define(schema: str, run: Callable, fake: Callable) -> None:
    """Define the op of `schema`, computed by `run` on any device; `fake` gives sizes and dtypes alone."""
    # Strides and alignment of q, k and v are checked, so a compiler must not choose others.
    name = _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
    # For every device: a tensor that is on the wrong one gets the op's own error.
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"fagen::{name}", fake, lib=_LIBRARY)


def define_autograd(name: str, backward: Callable, keep: Callable) -> None:
    """Have `backward` give the gradients of the op `name`, from what `keep` keeps of a call."""
    torch.library.register_autograd(f"fagen::{name}", backward, setup_context=keep, lib=_LIBRARY)


def refuse_gradients(name: str, why: str) -> None:
    """Have differentiating the op `name` be an ArgumentError that says `why`."""

    def refuse(ctx: Any, *grads: Tensor) -> None:
        raise ArgumentError(why)

    torch.library.register_autograd(f"fagen::{name}", refuse, lib=_LIBRARY)


def refuse_second_derivatives(gradient: str, of: str) -> None:
    """The same of the op `gradient`, whose results are gradients of `of`."""
    why = f"create_graph: the gradients of {of} were differentiated; allowed: first derivatives"
    refuse_gradients(gradient, why)


def _define_autograd(name: str, gradient: str, schema: Schema) -> None:
    """Have `gradient` compute the gradients of `name`; what is kept for it are tensors given or got."""

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        out, lse, *row_stats = output
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*row_stats)
        q, k, v, *rest = inputs
        packing, _, seed, _, ctx.options = schema.read(rest, backward=False)
        ctx.lengths = () if packing is None else packing.lengths
        offsets = () if packing is None else packing.offsets
        seeds = () if seed is None else (seed,)
        ctx.save_for_backward(q, k, v, out, lse, *offsets, *seeds, *row_stats)

    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        nothing = (None,) * len(ctx.needs_input_grad)
        if dout is None and dlse is None:
            return nothing
        q, k, v, out, lse, *rest = ctx.saved_tensors
        offsets, others = (rest[:2], rest[2:]) if ctx.lengths else ([], rest)
        dout = torch.zeros_like(out) if dout is None else dout
        run = getattr(torch.ops.fagen, gradient)
        gradients = run(dout, dlse, q, k, v, out, lse, *offsets, *ctx.lengths, *others, *ctx.options)
        return *gradients, *nothing[3:]

    define_autograd(name, backward, keep)


def _refuse_autograd(name: str, spec: Spec) -> None:
    given = "q, k, v or descales" if spec.problem.is_fp8 else "q, k, v"

    def backward(ctx: Any, *grads: Tensor) -> None:
        raise ArgumentError(
            f"{given}: require grad, but {name} has no backward (problem.passes: "
            f"{list(spec.problem.passes)}); call it under torch.no_grad() or on detached tensors"
        )

    torch.library.register_autograd(f"fagen::{name}", backward, lib=_LIBRARY)


def _differences(key: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for part in old:
            yield from _differences(f"{key}.{part}" if key else part, old[part], new.get(part))
    elif old != new:
        yield f"{key}: {old!r} there, {new!r} here"
