"""The argument lists of an op's two torch ops: how torch writes them, and how they are read."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from torch import Tensor

from fagen.ops.descales import Descales
from fagen.ops.layout import Packing
from fagen.spec.model import Spec


class Rest(NamedTuple):
    """What follows the tensors that every op has."""

    packing: Packing | None  # of packed sequences
    descales: Descales | None  # of 8-bit q, k and v
    seed: Tensor | None  # of the dropout mask, int64 [1]
    row_stats: Tensor | None  # v1's backward: the forward's m and l, fp32 [2, batch, heads_q, seqlen_q]
    options: tuple[Any, ...]  # scale, and dropout_p where there is dropout; defaults may be left out


class Schema:
    """What the torch ops of one spec take and return, beside what those of all specs do."""

    def __init__(self, spec: Spec):
        self._packed = spec.problem.layout == "thd"
        self._is_fp8 = spec.problem.is_fp8
        self._dropout = spec.problem.dropout
        self.has_row_stats = spec.family == "v1"  # Algorithm 1's m and l

    def forward(self, name: str) -> str:
        """The schema of the op `name`."""
        row_stats = ", Tensor row_stats" if self.has_row_stats else ""
        return (
            f"{name}(Tensor q, Tensor k, Tensor v, {self._rest(backward=False)}) "
            f"-> (Tensor out, Tensor lse{row_stats})"
        )

    def backward(self, name: str) -> str:
        """The schema of the op `name` that computes the gradients; `dlse` may be None: zeros."""
        return (
            f"{name}(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
            f"{self._rest(backward=True)}) -> (Tensor dq, Tensor dk, Tensor dv)"
        )

    def read(self, rest: Iterable[Any], *, backward: bool) -> Rest:
        """What an op was called with after v, or after LSE."""
        given = iter(rest)
        return Rest(
            packing=Packing(*islice(given, len(Packing._fields))) if self._packed else None,
            descales=Descales(*islice(given, len(Descales._fields))) if self._is_fp8 else None,
            seed=next(given) if self._dropout else None,
            row_stats=next(given) if self.has_row_stats and backward else None,
            options=tuple(given),
        )

    def _rest(self, *, backward: bool) -> str:
        arguments = {
            "Tensor cu_seqlens_q, Tensor cu_seqlens_k": self._packed,
            "SymInt max_seqlen_q, SymInt max_seqlen_k": self._packed,
            "Tensor q_descale, Tensor k_descale, Tensor v_descale": self._is_fp8,
            "Tensor seed": self._dropout,
            "Tensor row_stats": self.has_row_stats and backward,
            "float? scale=None": True,
            "float dropout_p=0.0": self._dropout,
        }
        return ", ".join(text for text, is_there in arguments.items() if is_there)
