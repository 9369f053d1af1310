"""What a run in the emulator depends on besides the kernel and its arguments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fagen.errors import EmulatorError

ENV = "FAGEN_EMU_SEED"
MAX_SEED = 2**64 - 1


@dataclass(frozen=True)
class Settings:
    """Of one run; the result and the errors depend on none but the first three."""

    seed: int = 0  # every seed is another order of threads and of landing copies
    preemption: float = 0.1  # probability that an operation on shared memory gives way to another thread
    step_limit: int = 10**8  # turns of one cluster's threads, after which it is a livelock; 0: none
    trace: Path | None = None  # file that a Chrome trace is written to
    os_threads: int = len(os.sched_getaffinity(0))  # clusters that run at once


_chosen: ContextVar[Settings | None] = ContextVar("settings of the emulator", default=None)


def current() -> Settings:
    """Those of the innermost `override`, else the seed that FAGEN_EMU_SEED gives and defaults.

    Raises EmulatorError for a seed that is none.
    """
    if chosen := _chosen.get():
        return chosen
    seed = os.environ.get(ENV, "0")
    if not seed.isdecimal() or int(seed) > MAX_SEED:
        raise EmulatorError(f"{ENV}: is `{seed}`; allowed: whole numbers from 0 to {MAX_SEED}")
    return Settings(seed=int(seed))


@contextmanager
def override(**changes: Any) -> Iterator[Settings]:
    """Run with other settings for the length of a `with` block, in this thread: `override(seed=3)`."""
    settings = replace(current(), **changes)
    token = _chosen.set(settings)
    try:
        yield settings
    finally:
        _chosen.reset(token)
