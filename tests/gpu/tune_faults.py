"""The tuner's work, with variants whose kernel faults on the GPU, or never ends, as their name says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from fagen.spec.model import Spec
from fagen.tune import variant
from fagen.tune.job import Batch, Timing
from fagen.tune.timing import timings
from fagen.tune.work import WORK

FOREVER = 2**50  # clock cycles

_load = variant.load


def time_with_faults(batch: Batch) -> tuple[Timing, ...]:
    variant.load = _load_or_fault
    return timings(batch)


def _load_or_fault(spec: Spec, direction: str) -> Callable[..., Any]:
    if spec.name.startswith("faults"):
        return lambda *given: torch.zeros(1, device="cuda")[torch.full((1,), 9, device="cuda")]
    if spec.name.startswith("hangs"):
        return lambda *given: torch.cuda._sleep(FOREVER)
    return _load(spec, direction)


WORK_WITH_FAULTS = replace(WORK, time=time_with_faults)
