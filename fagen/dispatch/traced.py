"""`fagen.attention` in a compiled graph: one torch op for every call, which chooses when it runs.

A graph that was traced with symbolic sizes runs at many, and may be kept on disk for processes that tune
in between; so what it holds is not the op of a spec. Any spec's backward takes any other's out and LSE.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fagen.dispatch.lookup import op_for
from fagen.dispatch.problem import UNPACKED, Mask, request_of, window_of
from fagen.ops.backward import Gradients, Inputs
from fagen.ops.layout import Packing, result_sizes
from fagen.ops.register import define, define_autograd, refuse_second_derivatives
from fagen.ops.seed import draw_seed

# No spec's name starts with an underscore.
NAME = "_attention"
GRADIENT = "_attention_backward"


class _Rest(NamedTuple):
    """What follows the tensors that every call has, in the order of _REST."""

    cu_seqlens_q: Tensor | None
    cu_seqlens_k: Tensor | None
    max_seqlen_q: int | None
    max_seqlen_k: int | None
    seed: Tensor | None  # None: no dropout
    scale: float | None
    dropout_p: float
    left: int | None
    right: int | None
    softcap: float | None
    layout: str | None
    deterministic: bool
    trains: bool

    @property
    def packing(self) -> tuple[Any, ...]:
        return self[: len(UNPACKED)]

    @property
    def choice(self) -> tuple[Any, ...]:
        """What `op_for` and `request_of` take after v."""
        window, dropout = (self.left, self.right), self.seed is not None
        return self.packing, window, self.softcap, dropout, self.layout, self.deterministic, self.trains


_REST = (
    "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, SymInt? max_seqlen_q, SymInt? max_seqlen_k, Tensor? seed, "
    "float? scale, float dropout_p, SymInt? left, SymInt? right, float? softcap, str? layout, "
    "bool deterministic, bool trains"
)


def traced(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packing: tuple[Any, ...],
    scale: float | None,
    dropout_p: float,
    mask: Mask,
    softcap: float | None,
    layout: str | None,
    deterministic: bool,
    trains: bool,
) -> tuple[Tensor, Tensor]:
    """out and LSE of `fagen.attention`, through the torch op."""
    seed = draw_seed(q, dropout_p) if dropout_p else None
    return torch.ops.fagen._attention(
        q, k, v, *packing, seed, scale, dropout_p, *window_of(mask), softcap, layout, deterministic, trains
    )


def _forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    of = _Rest(*rest)
    op = op_for(q, k, v, *of.choice)
    out, lse, _ = op.forward(q, k, v, _packing(of), None, of.seed, of.scale, of.dropout_p)
    assert lse is not None  # it is wanted
    return out, lse


def _fake_forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    request = request_of(q, k, v, *_Rest(*rest).choice)
    out_sizes, lse_sizes = result_sizes(request.problem, q)
    return q.new_empty(out_sizes), q.new_empty(lse_sizes, dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, *others = inputs
    rest = _Rest(*others)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, *output, rest.cu_seqlens_q, rest.cu_seqlens_k, rest.seed)
    ctx.rest = rest._replace(cu_seqlens_q=None, cu_seqlens_k=None, seed=None)


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
    nothing = (None,) * len(ctx.needs_input_grad)
    if dout is None and dlse is None:
        return nothing
    q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, seed = ctx.saved_tensors
    rest = ctx.rest._replace(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seed=seed)
    dout = torch.zeros_like(out) if dout is None else dout
    gradients = torch.ops.fagen._attention_backward(dout, dlse, q, k, v, out, lse, *rest)
    return *gradients, *nothing[3:]


def _backward(
    dout: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *rest: Any
) -> Gradients:
    of = _Rest(*rest)
    backward = op_for(q, k, v, *of.choice).backward
    assert backward is not None  # candidates have both passes
    given = Inputs(dout, dlse, q, k, v, out, lse, _packing(of), of.seed, None)
    return backward(given, of.scale, of.dropout_p)


def _fake_backward(dout: Tensor, dlse: Tensor | None, *rest: Any) -> Gradients:
    dq, dk, dv = (x.new_empty(x.shape) for x in rest[:3])
    return dq, dk, dv


def _packing(of: _Rest) -> Packing | None:
    return None if of.packing == UNPACKED else Packing(*of.packing)


define(f"{NAME}(Tensor q, Tensor k, Tensor v, {_REST}) -> (Tensor out, Tensor lse)", _forward, _fake_forward)
define(
    f"{GRADIENT}(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {_REST}) "
    "-> (Tensor dq, Tensor dk, Tensor dv)",
    _backward,
    _fake_backward,
)
define_autograd(NAME, _differentiate, _keep)
refuse_second_derivatives(GRADIENT, "fagen.attention")
