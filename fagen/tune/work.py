"""The work as it is done on GPUs."""

from __future__ import annotations

import torch

from fagen.bench.machine import arch_of_device
from fagen.tune.build import build, find
from fagen.tune.check import check
from fagen.tune.job import Kind
from fagen.tune.timing import timings
from fagen.tune.where import this_machine
from fagen.tune.workers import Work


def _start(index: int) -> None:
    torch.cuda.set_device(index)
    torch.zeros(1, device="cuda")  # a context


def _kind() -> Kind:
    return Kind(arch_of_device(torch.cuda.current_device()), this_machine())


WORK = Work(_start, _kind, find, build, timings, check)
