"""The tuner's workers on this machine."""

from __future__ import annotations

import os

from fagen.runtime.context import visible_devices
from fagen.tune.gpu import LocalCompiler, LocalGpu
from fagen.tune.work import WORK
from fagen.tune.workers import Crew


def local_workers() -> Crew:
    """The visible GPUs, and a compiler for each CPU.

    Raises LaunchError where there is no GPU, or one that fagen does not know.
    """
    count = visible_devices()
    if not count:
        from fagen.bench.machine import arch_of_device  # torch, which takes seconds

        arch_of_device(0)  # says why
    return Crew(
        [LocalGpu(index, WORK) for index in range(count)],
        [LocalCompiler(WORK) for _ in os.sched_getaffinity(0)],
    )
