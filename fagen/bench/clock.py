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
FLUSH_BYTES = 2**29  # several times the L2 of any GPU


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


def l2_flush() -> Callable[[], object]:
    """A call that fills the current GPU's L2 with lines that need no writing back."""
    buffer = torch.zeros(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    return buffer.amax


def _nothing() -> None:
    pass


def interleaved(
    calls: Sequence[Callable[[], object]],
    clock: Clock,
    rounds: int = ROUNDS,
    before: Callable[[], object] = _nothing,
) -> list[tuple[float, ...]]:
    """`rounds` times of each call: of two runs in a row, the one with the lower median.

    The calls take turns from the first to the last and back, A A A ... B B B ... B B B ... A A A ..., each
    after a rest of REST seconds and WARM_UP calls, if not more than `rounds`, that are not counted. Where
    power limits the clock, whoever runs later without a rest in between runs slower, by up to a tenth; and
    what the GPU does beside, it does not do to one call twice.

    `before`, e.g. an `l2_flush`, runs on the device before each call and is not counted. Without it a call
    finds in L2 what the one before has left. Nothing waits within a run, so that the device always has the
    next call at hand and the host's time does not count.
    """
    runs: list[list[tuple[float, ...]]] = [[] for _ in calls]
    there = range(len(calls))
    for i in (*there, *reversed(there)):
        clock.rest(REST)
        runs[i].append(_run(calls[i], clock, rounds, before))
    return [min(both, key=median) for both in runs]


def _run(
    call: Callable[[], object], clock: Clock, rounds: int, before: Callable[[], object]
) -> tuple[float, ...]:
    for _ in range(min(WARM_UP, rounds)):
        before()
        call()
    marks = [_marks(call, clock, before) for _ in range(rounds)]
    return tuple(clock.seconds(*pair) for pair in marks)


def _marks(call: Callable[[], object], clock: Clock, before: Callable[[], object]) -> tuple[Any, Any]:
    before()
    start = clock.mark()
    call()
    return start, clock.mark()
