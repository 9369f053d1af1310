from __future__ import annotations

import math

import pytest
import torch

from fagen.bench.trial import Deviation, PassTrial, Trial, emulated_trial, trial
from fagen.errors import LaunchError
from fagen.ops.load import load
from fagen.paths import SPECS
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

SMALL = {
    "problem.head_dim": 16,
    "schedule.tile": {"q": 32, "kv": 32},
    "schedule.roles.math.warps": 2,
    "schedule.backward.tile": {"q": 32, "kv": 32},
}


def one_pass(*errors: float, direction: str = "forward") -> PassTrial:
    return PassTrial(
        plan=plan(load_spec(SPECS / "a100_fa2.yaml"), None, direction),  # head_dim 128, causal
        shape=Shape(2, 3, 4, 5, 5),
        deviations=tuple(Deviation("x", error, allowed=0.1) for error in errors),
        seconds=1e-12,
    )


@pytest.mark.parametrize(
    ("errors", "right"), [((0.0, 0.1), True), ((0.0, 0.11), False), ((math.nan,), False)]
)
def test_right_is_within_every_allowance(errors: tuple[float, ...], right: bool):
    assert Trial((one_pass(*errors),), "a GPU").right == right
    assert Trial((one_pass(0.0), one_pass(*errors)), "a GPU").right == right


@pytest.mark.parametrize(("direction", "times"), [("forward", 1), ("backward", 2.5)])
def test_speed_counts_visible_pairs_only(direction: str, times: float):
    pairs = 2 + 3 + 4  # three queries at the end of four keys
    forward = 2 * 5 * pairs * 2 * (128 + 128)
    assert one_pass(direction=direction).tflops == pytest.approx(times * forward)


def test_every_pass_is_tried():
    op = load(SPECS / "a100_fa2.yaml", SMALL, device="emu")
    done = emulated_trial(op, Shape(1, 40, 70, 2, 1), 0, range(2))
    assert done.right and done.seeds == (0, 1)
    assert [own.plan.direction for own in done.passes] == ["forward", "backward"]
    assert [x.name for x in done.deviations] == ["out", "LSE", "dq", "dk", "dv"]


def test_a_pass_that_is_not_built_is_not_tried():
    op = load(SPECS / "a100_fa2.yaml", SMALL | {"problem.passes": ["forward"]}, device="emu")
    assert len(emulated_trial(op, Shape(1, 40, 70, 2, 1), 0, range(1)).passes) == 1


def test_what_is_measured_of_8_bits():
    small = {"schedule.tile": {"q": 64, "kv": 32}, "schedule.roles.math.warps": 4, "schedule.stages.kv": 2}
    op = load(SPECS / "h200_fp8.yaml", small, device="emu")
    done = emulated_trial(op, Shape(1, 40, 70, 2, 1), 0, range(1))
    out, lse = done.deviations
    assert done.right
    assert (out.name, out.measure, out.allowed) == ("out", "relative error (L2)", 6e-2)
    assert (lse.name, lse.measure) == ("LSE", "largest error")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_what_works_without():
    with pytest.raises(LaunchError, match="fagen doctor"):
        trial(load(SPECS / "a100_fa2.yaml"), Shape(1, 16, 16, 1, 1))


@pytest.mark.gpu
@pytest.mark.parametrize("spec", ["h200_fp8", "h200_fp8_d64", "h200_fp8_d256"])
@pytest.mark.parametrize("scale", ["head", "block"])
def test_a_right_8_bit_kernel_is_right(spec, scale):
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("8-bit kernels run on sm_90a")
    op = load(SPECS / f"{spec}.yaml", {"problem.fp8": {"scale": scale}})
    assert trial(op, Shape(2, 500, 700, 4, 2)).right


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_a_right_kernel_is_right(layout):
    op = load(SPECS / "a100_fa2.yaml", {"problem.layout": layout})
    assert trial(op, Shape(2, 100, 130, 4, 2)).right
