from __future__ import annotations

import math

import pytest
import torch

from fagen.bench.trial import Trial, trial
from fagen.errors import LaunchError
from fagen.ops.load import load
from fagen.paths import SPECS
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec


def done(error: float = 0.0, lse_error: float = 0.0) -> Trial:
    return Trial(
        plan=plan(load_spec(SPECS / "a100_fa2.yaml")),  # head_dim 128, causal
        shape=Shape(2, 3, 4, 5, 5),
        device="a GPU",
        error=error,
        allowed=0.1,
        lse_error=lse_error,
        lse_allowed=1e-3,
        seconds=1e-12,
    )


def test_nan_is_not_right():
    assert not done(error=math.nan).right
    assert not done(lse_error=math.nan).right


def test_right_is_within_both_allowances():
    assert done(error=0.1, lse_error=1e-3).right
    assert not done(error=0.11).right
    assert not done(lse_error=2e-3).right


def test_speed_counts_visible_pairs_only():
    pairs = 2 + 3 + 4  # three queries at the end of four keys
    assert done().tflops == pytest.approx(2 * 5 * pairs * 2 * (128 + 128))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_what_works_without():
    with pytest.raises(LaunchError, match="fagen doctor"):
        trial(load(SPECS / "a100_fa2.yaml"), Shape(1, 16, 16, 1, 1))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_a_right_kernel_is_right(layout):
    op = load(SPECS / "a100_fa2.yaml", {"problem.layout": layout})
    assert trial(op, Shape(2, 100, 130, 4, 2)).right
