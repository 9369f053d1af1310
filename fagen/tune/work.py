"""The work as it is done on GPUs. Only the processes that do it import torch, which takes seconds."""

from __future__ import annotations

from importlib import import_module

from fagen.hw.arch import arch_of_capability
from fagen.plan.launch import Shape
from fagen.runtime.context import capability
from fagen.spec.model import Spec
from fagen.tune.build import build, find
from fagen.tune.job import Batch, Kind, Timing
from fagen.tune.where import this_machine
from fagen.tune.workers import Work


def _kind(index: int) -> Kind:
    return Kind(arch_of_capability(capability(index)).name, this_machine(index))


def _start(index: int) -> None:
    import torch

    from fagen.bench.machine import arch_of_device

    for module in ("timing", "check"):  # now: a start may take its time, and a first call may not
        import_module(f"fagen.tune.{module}")
    arch_of_device(index)  # says what is wrong with torch
    torch.cuda.set_device(index)
    torch.zeros(1, device="cuda")  # a context


def _time(batch: Batch) -> tuple[Timing, ...]:
    from fagen.tune.timing import timings

    return timings(batch)


def _check(spec: Spec, shape: Shape, direction: str) -> str:
    from fagen.tune.check import check

    return check(spec, shape, direction)


WORK = Work(_start, _kind, find, build, _time, _check)
