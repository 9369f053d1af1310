"""The op of a call: a dict lookup where there was a call like it, else a choice."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fagen.dispatch.choose import choice_of
from fagen.dispatch.explanation import problem_text, table
from fagen.dispatch.problem import Mask, request_of
from fagen.errors import ArgumentError
from fagen.ops.load import load
from fagen.ops.op import AttentionOp
from fagen.ops.remembered import Remembered

_ops: Remembered[AttentionOp] = Remembered()  # by what a call's op depends on


def op_for(
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
) -> AttentionOp:
    """The op for a call, as in `request_of`; it is loaded but not built.

    Raises ArgumentError, also where no candidate is eligible: with the reason of each.
    """
    offsets, _, max_q, max_k = packing
    try:
        # fmt: off
        key = (
            q.shape, k.shape, v.shape, q.dtype, q.device, max_q, max_k,
            None if offsets is None else offsets.shape,
            mask, softcap, dropout, layout, deterministic, trains,
        )
        # fmt: on
        op = _ops.get(key)
    except (AttributeError, RuntimeError, TypeError):  # no tensor, no sizes or no hash
        return _chosen(q, k, v, packing, mask, softcap, dropout, layout, deterministic, trains)
    if op is None:
        op = _chosen(q, k, v, packing, mask, softcap, dropout, layout, deterministic, trains)
        _ops[key] = op
    return op


def _chosen(*call: Any) -> AttentionOp:
    request = request_of(*call)
    choice = choice_of(request)
    if choice.chosen is None or choice.chosen.spec is None:
        reasons = "\n".join(table(choice))
        raise ArgumentError(
            f"no spec computes this on {choice.target} ({problem_text(request.problem)}):\n{reasons}"
        )
    return load(choice.chosen.spec)
