"""How far a contender's results are from the reference, in one number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fagen.bench.expected import Inputs, expected, expected_gradients, largest_difference
from fagen.spec.model import Problem


class Check(NamedTuple):
    """An error of what a contender's call gives, and the largest one that is right."""

    error: Callable[[Any], float]
    allowed: float


def check(mode: str, problem: Problem, inputs: Inputs, dout: Tensor) -> Check:
    """Against the reference on these inputs, see ops.reference.

    Of mode fwd the error is that of out, in the measure of `Expected.error`; of the others that of the worst
    result, as a share of what it may have.
    """
    if mode == "fwd":
        wanted = expected(problem, inputs)
        return Check(wanted.error, wanted.allowed)
    gradients = expected_gradients(problem, inputs, dout)
    exact = list(zip(gradients.exact, gradients.allowed, strict=True))
    if mode == "fwd+bwd":
        wanted = expected(problem, inputs)
        exact.insert(0, (wanted.out, wanted.allowed))

    def error(found: Sequence[Tensor]) -> float:
        shares = [largest_difference(x, y) / most for x, (y, most) in zip(found, exact, strict=True)]
        return torch.tensor(shares).max().item()  # NaN where one is

    return Check(error, 1.0)
