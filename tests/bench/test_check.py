from __future__ import annotations

import math

import pytest
import torch

from fagen.bench.check import check
from fagen.bench.expected import expected, expected_gradients, random_inputs, random_like
from fagen.plan.launch import Shape
from fagen.spec.model import Problem

PROBLEM = Problem(dtype="bf16", head_dim=8, mask="causal")


@pytest.fixture
def inputs():
    return random_inputs(PROBLEM, Shape(1, 5, 7, 2, 1), seed=0, device="cpu")


@pytest.fixture
def dout(inputs):
    return random_like(inputs[0], seed=1)


def results(mode, inputs, dout) -> list[tuple[torch.Tensor, float]]:
    """Exact results of a mode, each with what it may be off by."""
    wanted, gradients = expected(PROBLEM, inputs), expected_gradients(PROBLEM, inputs, dout)
    both = {
        "fwd": [(wanted.out, wanted.allowed)],
        "bwd": list(zip(gradients.exact, gradients.allowed, strict=True)),
    }
    return both[mode] if mode in both else both["fwd"] + both["bwd"]


def test_a_forward_has_its_absolute_error(inputs, dout):
    found = check("fwd", PROBLEM, inputs, dout)
    ((out, allowed),) = results("fwd", inputs, dout)
    assert found.allowed == allowed
    assert found.error(out) == 0
    assert found.error(out + 0.25) == pytest.approx(0.25)
    assert math.isnan(found.error(torch.full_like(out, math.nan)))


@pytest.mark.parametrize("mode", ["bwd", "fwd+bwd"])
def test_with_a_backward_the_worst_result_counts_as_a_share_of_what_it_may_have(inputs, dout, mode):
    found = check(mode, PROBLEM, inputs, dout)
    exact = results(mode, inputs, dout)
    assert found.allowed == 1
    assert found.error([x for x, _ in exact]) == 0
    for which, (_, allowed) in enumerate(exact):
        wrong = [x.clone() for x, _ in exact]
        wrong[which][0, 3, 0, 2] += 1.5 * allowed
        assert found.error(wrong) == pytest.approx(1.5)
    wrong[0][0, 0, 0, 0] = math.nan
    assert not found.error(wrong) <= found.allowed
