"""Device time of calls that compete, in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

WARM_UP = 5
ROUNDS = 30


class Clock(Protocol):
    """Marks moments of the device's time."""

    def mark(self) -> Any:
        """The moment at which the device has done all that was asked of it before."""
        ...

    def seconds(self, start: Any, end: Any) -> float:
        """Time between two marks; waits for the later one."""
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


def interleaved(calls: Sequence[Callable[[], object]], clock: Clock) -> list[tuple[float, ...]]:
    """Times of each call over ROUNDS rounds A B C, A B C, ..., so that clocks and heat are alike for all.

    L2 is not flushed: a call finds there what the one before has left. Nothing waits between the calls, so
    that the device always has the next one at hand and the host's time does not count.
    """
    for _ in range(WARM_UP):
        for call in calls:
            call()
    rounds = [[_marks(call, clock) for call in calls] for _ in range(ROUNDS)]
    return [tuple(clock.seconds(*marks) for marks in one) for one in zip(*rounds, strict=True)]


def _marks(call: Callable[[], object], clock: Clock) -> tuple[Any, Any]:
    start = clock.mark()
    call()
    return start, clock.mark()
