"""The tuner's workers on this machine."""

from __future__ import annotations

import os

import torch

from fagen.bench.machine import arch_of_device
from fagen.tune.gpu import LocalCompiler, LocalGpu
from fagen.tune.work import WORK
from fagen.tune.workers import Crew


def local_workers() -> Crew:
    """The visible GPUs, and a compiler for each CPU.

    Raises LaunchError where there is no GPU, TuneError where one cannot be worked on.
    """
    count = torch.cuda.device_count()
    if not count:
        arch_of_device(0)  # says why
    gpus = [LocalGpu(index, WORK) for index in range(count)]  # no CUDA here: a context takes a second
    return Crew(gpus, [LocalCompiler(WORK) for _ in os.sched_getaffinity(0)])
