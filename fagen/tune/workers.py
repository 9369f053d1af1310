"""Those who work for the tuner, wherever they are: GPUs that time, compilers, and how work is shared out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol

from fagen.compile.artifact import Program
from fagen.plan.launch import Shape
from fagen.spec.model import Spec
from fagen.tune.budget import ENDLESS, Budget
from fagen.tune.job import Batch, Kind, Timing
from fagen.tune.spread import spread

_log = logging.getLogger("fagen")


@dataclass(frozen=True)
class Work:
    """What is done for the tuner: functions of modules; all but `kind` and `find` in processes."""

    start: Callable[[int], object]  # takes a GPU, by its index, for `time` and `check`
    kind: Callable[[int], Kind]  # of a GPU, by its index; raises FagenError
    find: Callable[[Spec, str, str], Program | None]  # what `build` need not build
    build: Callable[[Spec, str, str], Program | None]  # a pass of a spec for an arch; raises FagenError
    time: Callable[[Batch], tuple[Timing, ...]]  # a Fault's place is the index of a spec
    check: Callable[[Spec, Shape, str], str]


class Gpu(Protocol):
    """A GPU somewhere; a kernel that faults there is a problem of one variant, in words."""

    def kind(self) -> Kind:
        """What it is; does not wait until it can be worked on. Raises FagenError where it never can."""
        ...

    def time(self, batch: Batch, seconds: float) -> tuple[Timing, ...]:
        """As many timings as the batch has specs. Raises FagenError where the GPU cannot be worked on.

        When so many seconds are over, a hang is not waited for, and what it held up is not timed.
        """
        ...

    def check(self, spec: Spec, shape: Shape, direction: str) -> str:
        """What is wrong with a pass's results; "": they are right."""
        ...

    def close(self) -> None:
        """End what it is at."""
        ...


class Compiler(Protocol):
    """A CPU somewhere."""

    def build(self, spec: Spec, arch: str, direction: str) -> str:
        """Compile a pass of a spec so that every GPU finds it; what is wrong with it, or ""."""
        ...

    def close(self) -> None:
        """End what it is at."""
        ...


class Crew:
    """GPUs of one kind, and compilers. See `job.Workers`."""

    def __init__(self, gpus: Sequence[Gpu], compilers: Sequence[Compiler]):
        """Of GPUs of several kinds, those of the most frequent one work. Raises what their `kind` raises."""
        self._everyone = (*gpus, *compilers)
        self._compilers = compilers
        pool = ThreadPoolExecutor(len(gpus))  # they take seconds to come up
        try:
            kinds = list(pool.map(lambda gpu: gpu.kind(), gpus))
        except BaseException:
            self.close()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        ((self.kind, self.gpus),) = Counter(kinds).most_common(1)
        self._gpus = [gpu for gpu, kind in zip(gpus, kinds, strict=True) if kind == self.kind]
        self._idle = SimpleQueue[Gpu]()
        for gpu in self._gpus:
            self._idle.put(gpu)
        for other, count in Counter(kinds).items():
            if other != self.kind:
                _log.warning("tune: %d GPU(s) left out: %s", count, other.where.difference(self.kind.where))

    def build(
        self, specs: Sequence[Spec], direction: str, budget: Budget = ENDLESS
    ) -> Iterator[tuple[Spec, str]]:
        """See `job.Workers`."""
        return spread(specs, self._compilers, partial(self._build, direction), budget)

    def time(
        self, batches: Sequence[Batch], budget: Budget = ENDLESS
    ) -> Iterator[tuple[Batch, tuple[Timing, ...]]]:
        """See `job.Workers`."""
        return spread(batches, self._gpus, lambda gpu, batch: gpu.time(batch, budget.left))

    def check(self, spec: Spec, shape: Shape, direction: str) -> str:
        """See `job.Workers`; a GPU that has nothing to check does it."""
        gpu = self._idle.get()
        try:
            return gpu.check(spec, shape, direction)
        finally:
            self._idle.put(gpu)

    def close(self) -> None:
        """See `job.Workers`."""
        with ThreadPoolExecutor(len(self._everyone)) as pool:  # the end of a CUDA context takes a while
            list(pool.map(lambda one: one.close(), self._everyone))

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _build(self, direction: str, compiler: Compiler, spec: Spec) -> str:
        return compiler.build(spec, self.kind.arch, direction)
