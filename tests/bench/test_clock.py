from __future__ import annotations

import pytest

from fagen.bench.clock import ROUNDS, WARM_UP, interleaved


def test_each_call_runs_after_a_rest_forwards_and_backwards(clock):
    order = []
    calls = [lambda name=name: order.append((name, clock.rests)) for name in "ab"]
    interleaved(calls, clock)
    runs = [("a", 1), ("b", 2), ("b", 3), ("a", 4)]
    assert order == [run for run in runs for _ in range(WARM_UP + ROUNDS)]


def test_the_better_run_counts_and_no_warm_up(clock):
    count = 0

    def call(seconds: float) -> None:
        nonlocal count
        warms_up = count % (WARM_UP + ROUNDS) < WARM_UP
        clock.now += 1000.0 if warms_up else seconds * clock.rests
        count += 1

    a, b = interleaved([lambda: call(1.0), lambda: call(2.0)], clock)
    assert a == pytest.approx([1.0 * 1] * ROUNDS)
    assert b == pytest.approx([2.0 * 2] * ROUNDS)


def test_there_are_enough_rounds_for_a_median():
    assert ROUNDS >= 20


def test_nothing_to_time(clock):
    assert interleaved([], clock) == []


def test_what_runs_before_each_call_is_not_counted(clock):
    def flush() -> None:
        clock.now += 100.0

    def call() -> None:
        clock.now += 1.0

    (times,) = interleaved([call], clock, before=flush)
    assert times == (1.0,) * ROUNDS
    assert clock.now == 2 * (WARM_UP + ROUNDS) * 101.0
