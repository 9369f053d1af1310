"""Workers without a GPU: device times are a function of the plan, with noise; what goes wrong is told."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fagen.errors import CompileError
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import predict
from fagen.spec.model import Spec
from fagen.tune.budget import ENDLESS, Budget
from fagen.tune.job import Batch, Kind, Timing
from fagen.tune.process import at
from fagen.tune.store import Where
from fagen.tune.workers import Work

WHERE = Where(gpu="NVIDIA H200", driver="580.1", nvrtc="13.0", headers="a")
KIND = Kind("sm_90a", WHERE)


def quirk(spec: Spec, direction: str) -> float:
    """How far the model is off for a plan: up to 4% either way, always the same."""
    return random.Random(repr(plan(spec, direction=direction).tiling)).uniform(0.96, 1.04)


_seconds: dict[tuple[str, Shape, str], float] = {}


@dataclass
class FakeWorkers:
    """Remembers what it was asked for. Problems are by a word in the spec's name."""

    noise: float = 0.003
    gpus: int = 1
    seed: int = 0
    kind: Kind = KIND
    unbuildable: str = "-"
    crashing: str = "-"
    wrong: str = "-"
    before_batch: Callable[[int], None] = lambda number: None  # may raise
    before_build: Callable[[int], None] = lambda number: None
    built: list[str] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)

    def seconds(self, spec: Spec, shape: Shape, direction: str) -> float:
        question = spec.model_dump_json(), shape, direction
        if question not in _seconds:
            planned = plan(spec, direction=direction)
            _seconds[question] = predict(planned, shape).seconds * quirk(spec, direction)
        return _seconds[question]

    def build(
        self, specs: Sequence[Spec], direction: str, budget: Budget = ENDLESS
    ) -> Iterator[tuple[Spec, str]]:
        for spec in specs:
            self.before_build(len(self.built))
            self.built.append(spec.name)
            yield spec, "spills 8 bytes" if self.unbuildable in spec.name else ""

    def time(
        self, batches: Sequence[Batch], budget: Budget = ENDLESS
    ) -> Iterator[tuple[Batch, tuple[Timing, ...]]]:
        for batch in batches:
            self.before_batch(len(self.batches))
            self.batches.append(batch)
            chance = random.Random(1000 * self.seed + len(self.batches))
            clock = chance.uniform(0.9, 1.1)  # differs from batch to batch
            yield batch, tuple(self._timing(spec, batch, clock, chance) for spec in batch.specs)

    def _timing(self, spec: Spec, batch: Batch, clock: float, chance: random.Random) -> Timing:
        if self.crashing in spec.name:
            return Timing(problem="crashed its process (SIGSEGV)")
        exact = self.seconds(spec, batch.shape, batch.direction) * clock
        return Timing(tuple(exact * chance.gauss(1, self.noise) for _ in range(batch.rounds)))

    def check(self, spec: Spec, shape: Shape, direction: str) -> str:
        self.checked.append(spec.name)
        return "out: error 1.0; allowed 0.01" if self.wrong in spec.name else ""

    def close(self) -> None: ...

    def __enter__(self) -> FakeWorkers:
        return self

    def __exit__(self, *_: object) -> None: ...

    @property
    def timed(self) -> set[str]:
        return {spec.name for batch in self.batches for spec in batch.specs}


# The same times, made in the tuner's own processes (fagen.tune.workers.Crew).


def _start(index: int) -> None: ...


def start_when_told(index: int) -> None:
    """Comes up when there is a file at $MAY_START."""
    while not os.path.exists(os.environ["MAY_START"]):
        time.sleep(0.02)


def _kind(index: int) -> Kind:
    return KIND


def _find(spec: Spec, arch: str, direction: str) -> None: ...


def _build(spec: Spec, arch: str, direction: str) -> None:
    if "tile_kv_64" in spec.name:
        raise CompileError("spills 8 bytes")


def _time(batch: Batch) -> tuple[Timing, ...]:
    for i, spec in enumerate(batch.specs):
        at(i)
        if "stages_q_1" in spec.name:
            os.kill(os.getpid(), signal.SIGSEGV)
    workers = FakeWorkers()
    ((_, timings),) = workers.time([batch])
    return timings


def _check(spec: Spec, shape: Shape, direction: str) -> str:
    return ""


WORK = Work(_start, _kind, _find, _build, _time, _check)
