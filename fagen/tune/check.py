"""Whether a variant is right: a pass on random inputs against the fp64 reference.

The pass runs on the whole shape, into memory that is full of NaN. The reference computes the first and the
last (sequence, K/V head) with its query heads: most often less than a second.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fagen.bench.expected import expected, expected_gradients, largest_difference, must_fit
from fagen.bench.trial import FP8_LSE_ALLOWED, LSE_ALLOWED
from fagen.ops.layout import Packing
from fagen.plan.launch import Shape
from fagen.spec.model import Problem, Spec
from fagen.tune import variant
from fagen.tune.process import alive


def check(spec: Spec, shape: Shape, direction: str, device: str = "cuda") -> str:
    """What is wrong with the pass's results, with numbers; "": they are right, see ops.reference.

    `device` is torch's. Raises ArgumentError where the inputs do not fit into its memory, and whatever the
    pass raises.
    """
    with must_fit(shape):
        given = variant.arguments(spec, shape, direction, seed=0, device=device)
        alive()
        run = variant.load(spec, direction)
        with _memory_full_of_nan():
            results = run(*given)[: len(variant.NAMES[direction])]
        named = dict(zip(variant.NAMES[direction], results, strict=True))
        compare = _forward if direction == "forward" else _backward
        parts = sorted({(0, 0), (shape.batch - 1, shape.heads_kv - 1)})
        wrong = [compare(_Part(spec.problem, shape, *part), given, named) for part in parts]
        return "; ".join([*_unwritten(named), *(line for lines in wrong for line in lines)])


@contextmanager
def _memory_full_of_nan() -> Iterator[None]:
    """Torch fills what it allocates, integers with their largest value."""
    before = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a pass that is not deterministic says so
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)


def _unwritten(results: dict[str, Tensor]) -> Iterator[str]:
    for name, x in results.items():
        if count := int(x.isnan().sum()):
            yield f"{name}: {count:,} of {x.numel():,} elements are NaN"


@dataclass(frozen=True)
class _Part:
    """What one K/V head of one sequence is concerned with."""

    problem: Problem
    shape: Shape
    sequence: int
    head: int

    @property
    def alone(self) -> Problem:
        """The problem in the layout of the parts."""
        return self.problem.model_copy(update={"layout": "bshd"})

    def of(self, x: Tensor) -> Tensor:
        """Its part of q, k, v, out or a gradient of them: [1, sequence, heads, head_dim]."""
        if self.problem.layout == "thd":
            x = x.unflatten(0, (self.shape.batch, -1))
        elif self.problem.layout == "bhsd":
            x = x.transpose(1, 2)
        return self._heads(x[self.sequence : self.sequence + 1], 2)

    def of_lse(self, x: Tensor) -> Tensor:
        """Its part of LSE: [1, heads, seqlen_q]."""
        if self.problem.layout == "thd":
            x = x.unflatten(1, (self.shape.batch, -1)).transpose(0, 1)
        return self._heads(x[self.sequence : self.sequence + 1], 1)

    def of_v(self, v: Tensor) -> Tensor:
        """Its part of v, which may be transposed: [1, heads, head_dim_v, sequence] then."""
        if self.problem.v_transposed:
            return self._heads(v[self.sequence : self.sequence + 1], 1)
        return self.of(v)

    def of_descale(self, x: Tensor) -> Tensor:
        """Its part of a descale of [1], or [batch, heads, ...]."""
        return x if x.dim() == 1 else self._heads(x[self.sequence : self.sequence + 1], 1)

    def difference(self, name: str, error: float, allowed: float) -> Iterator[str]:
        """What is wrong with one result, if anything is."""
        if not error <= allowed:  # NaN, too
            where = f"sequence {self.sequence}, K/V head {self.head}"
            yield f"{name}: error {error:.2e}, allowed {allowed:.2e} ({where})"

    def _heads(self, x: Tensor, axis: int) -> Tensor:
        heads = x.shape[axis] // self.shape.heads_kv
        return x.narrow(axis, self.head * heads, heads)


def _forward(part: _Part, given: Sequence[Any], results: dict[str, Tensor]) -> Iterator[str]:
    alive()
    q, k, v, _, descales, *_ = given
    inputs: tuple[Any, ...] = part.of(q), part.of(k), part.of_v(v)
    if descales is not None:
        inputs += (None,) * len(Packing._fields) + tuple(map(part.of_descale, descales))
    exact = expected(part.alone, inputs)
    yield from part.difference("out", exact.error(part.of(results["out"])), exact.allowed)
    lse_error = largest_difference(part.of_lse(results["LSE"]), exact.lse)
    yield from part.difference("LSE", lse_error, FP8_LSE_ALLOWED if descales else LSE_ALLOWED)


def _backward(part: _Part, given: Sequence[Any], results: dict[str, Tensor]) -> Iterator[str]:
    alive()
    (inputs,) = given
    qkv = part.of(inputs.q), part.of(inputs.k), part.of(inputs.v)
    wanted = expected_gradients(part.alone, qkv, part.of(inputs.dout))
    for (name, found), exact, allowed in zip(results.items(), wanted.exact, wanted.allowed, strict=True):
        yield from part.difference(name, largest_difference(part.of(found), exact), allowed)
