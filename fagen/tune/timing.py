"""Device time of variants that compete: on a cold L2 and warm clocks, in turns, on the same inputs.

Runs in a process of its own (see process.py), whose place is the index of the variant at work.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fagen.bench.clock import Clock, CudaClock, interleaved, l2_flush
from fagen.bench.expected import must_fit
from fagen.tune import variant
from fagen.tune.job import Batch, Timing
from fagen.tune.process import Fault, alive, at

COPIES = 2  # of the inputs, taken in rotation
WARM_UP = 0.3  # seconds of work before the first time counts: clocks have gone down while kernels were loaded

Call = Callable[[], object]


class WatchedClock(CudaClock):
    """Tells who watches this process that kernels come to their ends."""

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """As CudaClock's."""
        alive()
        return super().seconds(start, end)


def timings(batch: Batch) -> tuple[Timing, ...]:
    """Time a batch on the current GPU, on inputs of its own; as many timings as specs.

    A variant that cannot be loaded or launched has a problem. Raises Fault where one has put an end to the
    process's CUDA context, and ArgumentError where the inputs do not fit into the GPU's memory.
    """
    with must_fit(batch.shape):
        spec, *_ = batch.specs
        copies = [
            variant.arguments(spec, batch.shape, batch.direction, seed, "cuda") for seed in range(COPIES)
        ]
        return compete(batch, copies, WatchedClock(), l2_flush())


def compete(batch: Batch, copies: Sequence[tuple[Any, ...]], clock: Clock, flush: Call) -> tuple[Timing, ...]:
    """Time a batch on these inputs. Raises Fault."""
    calls: dict[int, Call] = {}
    found: dict[int, Timing] = {}
    for i, spec in enumerate(batch.specs):
        at(i)
        try:
            call = _call(i, variant.load(spec, batch.direction), copies)
            call()
            clock.rest(0)
        except Exception as error:
            found[i] = Timing(problem=_words(error))
            _check_context(clock)
        else:
            calls[i] = call
    try:
        _warm_up(list(calls.values()), clock)
        times = interleaved(list(calls.values()), clock, batch.rounds, flush)
    except Exception as error:
        raise Fault(_words(error)) from error
    found |= {i: Timing(seconds) for i, seconds in zip(calls, times, strict=True)}
    return tuple(found[i] for i in range(len(batch.specs)))


def _call(place: int, run: Callable[..., object], copies: Sequence[tuple[Any, ...]]) -> Call:
    rotation = itertools.cycle(copies)

    def call() -> None:
        at(place)
        run(*next(rotation))

    return call


def _check_context(clock: Clock) -> None:
    try:
        clock.rest(0)
    except Exception as error:  # a kernel's fault stays with its context
        raise Fault(_words(error)) from error


def _warm_up(calls: Sequence[Call], clock: Clock) -> None:
    end = time.perf_counter() + WARM_UP
    for call in itertools.cycle(calls):
        call()
        clock.rest(0)
        if time.perf_counter() > end:
            break


def _words(error: Exception) -> str:
    return str(error).strip() or type(error).__name__
