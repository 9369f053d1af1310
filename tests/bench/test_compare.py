from __future__ import annotations

import math

import pytest
import torch

from fagen.bench.clock import ROUNDS
from fagen.bench.compare import DETERMINISTIC, OURS, Case, Check, build, cases, compare, run
from fagen.bench.peers import installed
from fagen.errors import PlanError
from fagen.paths import SPECS
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec


@pytest.fixture
def wanted() -> Check:
    return Check(lambda found: found.abs().max().item(), allowed=0.5)


@pytest.fixture
def gives(clock):
    """A contender that gives this value everywhere and takes that long."""

    def make(value: float, seconds: float = 1.0):
        def call():
            clock.now += seconds
            return torch.full((3,), value)

        return lambda: call

    return make


def test_cases_are_the_papers(todo):
    assert [(case.spec.problem.mask, case.shape) for case in todo] == [
        (mask, shape)
        for mask in ("none", "causal")
        for shape in (Shape(16, 1024, 1024, 16, 16), Shape(8, 2048, 2048, 16, 16))
    ]
    assert {case.spec_name for case in todo} == {"h200_fa2"}
    assert len({case.spec.name for case in todo}) == 2, "two kernels"


def test_a_window_stays():
    spec = load_spec(SPECS / "h200_fa2.yaml", {"problem.mask": {"window": [128, None]}})
    (case,) = cases([spec], (1024,), "sm_90a")
    assert case.spec == spec
    assert str(case).endswith(", mask window [128, null], S 1024")


def test_a_length_beyond_the_tokens_is_one_sequence():
    (case, _) = cases([load_spec(SPECS / "h200_fa2.yaml")], (32768,), "sm_90a")
    assert case.shape.batch == 1


def test_a_spec_that_does_not_fit_the_gpu_is_refused_at_once():
    with pytest.raises(PlanError):
        cases([load_spec(SPECS / "h200_fa2_d256.yaml", {"schedule.stages.kv": 8})], (2048,), "sm_90a")


def test_building_ahead_leaves_failures_to_whoever_runs_the_case(monkeypatch, todo):
    asked = []

    def load(spec):
        asked.append(spec.name)
        raise PlanError("no")

    monkeypatch.setattr("fagen.bench.compare.load", load)
    build(todo)
    assert sorted(asked) == sorted({case.spec.name for case in todo})
    asked.clear()
    build(cases([load_spec(SPECS / "h200_fa2.yaml")], (2048,), "sm_90a", "backward"))
    assert len(asked) == 4, "two masks, with and without problem.deterministic"


def test_right_contenders_are_timed(todo, wanted, gives, clock):
    contenders = {OURS: gives(0.1, seconds=1.0), "slow": gives(-0.5, seconds=2.0)}
    result = compare(todo[0], wanted, contenders, clock)
    assert result.allowed == 0.5
    assert result.outcomes[OURS].error == pytest.approx(0.1)
    assert len(result.outcomes["slow"].seconds) == ROUNDS
    assert result.ratio("slow") == pytest.approx(2.0)
    flops = 4 * 16 * 16 * 1024 * 1024 * 128
    assert result.tflops("slow") == pytest.approx(flops / 2.0 / 1e12)


@pytest.mark.parametrize("value", [0.6, math.nan, math.inf])
def test_a_wrong_result_is_never_timed(todo, wanted, gives, clock, value):
    result = compare(todo[0], wanted, {OURS: gives(value), "peer": gives(0.0)}, clock)
    assert result.outcomes[OURS].problem.startswith("wrong: error")
    assert result.tflops(OURS) is None and result.ratio("peer") is None
    assert result.outcomes["peer"].seconds


@pytest.mark.parametrize(
    "failure", [ImportError("not here\nmore"), RuntimeError("not here"), AssertionError()]
)
def test_who_cannot_run_does_not_stop_the_others(todo, wanted, gives, clock, failure):
    def broken():
        raise failure

    contenders = {"set up": broken, "call": lambda: broken, OURS: gives(0.0)}
    result = compare(todo[0], wanted, contenders, clock)
    for name in ("set up", "call"):
        assert result.outcomes[name].problem in ("cannot run: not here", "cannot run: AssertionError")
    assert result.outcomes[OURS].seconds


def test_backward_cases_have_the_backwards_plan():
    todo = cases([load_spec(SPECS / "h200_fa2.yaml")], (2048,), "sm_90a", "backward")
    assert [case.plan.direction for case in todo] == ["backward"] * 2
    assert [case.mask for case in todo] == ["none", "causal"]


@pytest.mark.gpu
def test_on_a_gpu_the_backward_is_timed_beside_the_deterministic_one():
    spec = load_spec(SPECS / "h200_fa2.yaml", {"problem.head_dim": 64})
    case = cases([spec], (256,), "sm_90a", "backward")[1]
    result = run(Case(case.spec_name, case.plan, Shape(2, 256, 256, 4, 4)))
    for name in (OURS, DETERMINISTIC, "torch flash"):
        assert result.outcomes[name].seconds, result.outcomes[name].problem
    assert result.ratio(DETERMINISTIC)


@pytest.mark.gpu
def test_on_a_gpu_the_op_and_its_peers_are_timed():
    spec = load_spec(SPECS / "h200_fa2.yaml", {"problem.head_dim": 64})
    case = cases([spec], (256,), "sm_90a")[1]
    result = run(Case(case.spec_name, case.plan, Shape(2, 256, 256, 4, 4)))
    assert list(result.outcomes) == [OURS, *installed()]
    assert result.outcomes[OURS].seconds, result.outcomes[OURS].problem
