from __future__ import annotations

import pytest

from fagen.bench.clock import ROUNDS, WARM_UP, interleaved


def test_calls_take_turns_and_the_warm_up_is_not_counted(clock):
    order = []

    def call(name: str, seconds: float) -> None:
        order.append(name)
        clock.now += seconds if len(order) > 2 * WARM_UP else 1000.0

    a, b = interleaved([lambda: call("a", 1.0), lambda: call("b", 2.0)], clock)
    assert order == ["a", "b"] * (WARM_UP + ROUNDS)
    assert a == pytest.approx([1.0] * ROUNDS)
    assert b == pytest.approx([2.0] * ROUNDS)


def test_there_are_enough_rounds_for_a_median():
    assert ROUNDS >= 20


def test_nothing_to_time(clock):
    assert interleaved([], clock) == []
