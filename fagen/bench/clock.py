"""Device time of calls that compete: each by itself after a rest, forwards and then backwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Protocol

import torch

WARM_UP = 5
ROUNDS = 30
REST = 0.05  # seconds


class Clock(Protocol):
    """Marks moments of the device's time."""

    def mark(self) -> Any:
        """The moment at which the device has done all that was asked of it before."""
        ...

    def seconds(self, start: Any, end: Any) -> float:
        """Time between two marks; waits for the later one."""
        ...

    def rest(self, seconds: float) -> None:
        """Leave the device without work for that long."""
        ...


class CudaClock:
    """CUDA events on the current stream of the current device."""

    def mark(self) -> torch.cuda.Event:
        """An event, recorded now."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Time between two events, to about half a microsecond."""
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def rest(self, seconds: float) -> None:
        """Wait for the device, then sleep."""
        torch.cuda.synchronize()
        time.sleep(seconds)


def interleaved(
    calls: Sequence[Callable[[], object]], clock: Clock, rounds: int = ROUNDS
) -> list[tuple[float, ...]]:
    """`rounds` times of each call: of two runs in a row, the one with the lower median.

    The calls take turns from the first to the last and back, A A A ... B B B ... B B B ... A A A ..., each
    after a rest of REST seconds and WARM_UP calls, if not more than `rounds`, that are not counted. Where
    power limits the clock, whoever runs later without a rest in between runs slower, by up to a tenth; and
    what the GPU does beside, it does not do to one call twice.

    L2 is not flushed: a call finds there what the one before has left. Nothing waits within a run, so that
    the device always has the next call at hand and the host's time does not count.
    """
    runs: list[list[tuple[float, ...]]] = [[] for _ in calls]
    there = range(len(calls))
    for i in (*there, *reversed(there)):
        clock.rest(REST)
        runs[i].append(_run(calls[i], clock, rounds))
    return [min(both, key=median) for both in runs]


def _run(call: Callable[[], object], clock: Clock, rounds: int) -> tuple[float, ...]:
    for _ in range(min(WARM_UP, rounds)):
        call()
    marks = [_marks(call, clock) for _ in range(rounds)]
    return tuple(clock.seconds(*pair) for pair in marks)


def _marks(call: Callable[[], object], clock: Clock) -> tuple[Any, Any]:
    start = clock.mark()
    call()
    return start, clock.mark()
