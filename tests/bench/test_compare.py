from __future__ import annotations

import math

import pytest
import torch

from fagen.bench.check import Check
from fagen.bench.clock import ROUNDS, WARM_UP
from fagen.bench.compare import OURS, compare


@pytest.fixture
def wanted() -> Check:
    return Check(lambda found: found.abs().max().item(), allowed=0.5)


@pytest.fixture
def gives(clock, allocator):
    """A contender that gives this value, takes that long, keeps so many bytes and uses more in a call."""

    def make(value: float, seconds: float = 1.0, kept: int = 0, used: int = 0):
        def call():
            clock.now += seconds
            allocator.most = max(allocator.most, allocator.held + used)
            return torch.full((3,), value)

        def set_up():
            allocator.held += kept
            allocator.most = 10**9  # setting up may take what it likes
            return call

        return set_up

    return make


def test_right_contenders_are_timed(todo, wanted, gives, clock, allocator):
    contenders = {OURS: gives(0.1, seconds=1.0), "slow": gives(-0.5, seconds=2.0)}
    result = compare(todo[0], wanted, contenders, clock, allocator)
    assert result.allowed == 0.5
    assert result.outcomes[OURS].error == pytest.approx(0.1)
    assert len(result.outcomes["slow"].seconds) == ROUNDS
    assert result.ratio("slow") == pytest.approx(2.0)
    assert result.ratio("who is that") is None
    flops = 4 * 16 * 16 * 1024 * 1024 * 128
    assert result.tflops("slow") == pytest.approx(flops / 2.0 / 1e12)


def test_memory_is_what_a_contender_keeps_and_what_a_warm_call_adds(todo, wanted, gives, clock, allocator):
    allocator.held = 1000  # inputs
    contenders = {OURS: gives(0.0, kept=8, used=30), "peer": gives(0.0, kept=0, used=5)}
    result = compare(todo[0], wanted, contenders, clock, allocator)
    assert {name: outcome.peak_bytes for name, outcome in result.outcomes.items()} == {OURS: 38, "peer": 5}
    assert allocator.released == 2


@pytest.mark.parametrize("value", [0.6, math.nan, math.inf])
def test_a_wrong_result_is_never_timed(todo, wanted, gives, clock, allocator, value):
    contenders = {OURS: gives(value), "peer": gives(0.0)}
    result = compare(todo[0], wanted, contenders, clock, allocator)
    assert result.outcomes[OURS].problem.startswith("wrong: error")
    assert result.tflops(OURS) is None and result.ratio("peer") is None
    assert result.outcomes["peer"].seconds


@pytest.mark.parametrize(
    "failure", [ImportError("not here\nmore"), RuntimeError("not here"), AssertionError()]
)
def test_who_cannot_run_does_not_stop_the_others(todo, wanted, gives, clock, allocator, failure):
    def broken():
        raise failure

    contenders = {"set up": broken, "call": lambda: broken, OURS: gives(0.0)}
    result = compare(todo[0], wanted, contenders, clock, allocator)
    for name in ("set up", "call"):
        assert result.outcomes[name].problem in ("cannot run: not here", "cannot run: AssertionError")
    assert result.outcomes[OURS].seconds


@pytest.mark.parametrize("call", [3, 20, 100])
def test_who_fails_while_being_timed_does_not_stop_the_others(todo, wanted, gives, clock, allocator, call):
    right, calls = gives(0.0)(), []

    def tires():
        calls.append(0)
        if len(calls) >= call:
            raise RuntimeError("no more\nof this")
        return right()

    contenders = {"before": gives(0.0), "tires": lambda: tires, OURS: gives(0.0)}
    result = compare(todo[0], wanted, contenders, clock, allocator)
    found = result.outcomes["tires"]
    if call > 2 + 2 * (ROUNDS + WARM_UP):
        assert found.seconds and not found.problem
    else:
        assert found.problem == "cannot run again: no more" and found.seconds == ()
        assert len(calls) == call, "and it is not asked again"
    assert len(result.outcomes["before"].seconds) == len(result.outcomes[OURS].seconds) == ROUNDS


def test_ctrl_c_stops_all(todo, wanted, clock, allocator):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(todo[0], wanted, {OURS: interrupted}, clock, allocator)
