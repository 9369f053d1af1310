"""A GPU of this machine, and a compiler: each a process of its own, so that a fault in it goes no further."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fagen.errors import FagenError, TuneError
from fagen.plan.launch import Shape
from fagen.spec.model import Spec
from fagen.tune.budget import starting_now
from fagen.tune.job import Batch, Kind, Timing
from fagen.tune.process import PATIENCE, Fault, Process
from fagen.tune.workers import Work

COMPILING = 300.0  # seconds that a pass may take


class LocalGpu:
    """See `workers.Gpu`."""

    def __init__(self, index: int, work: Work, patience: float = PATIENCE):
        """`index` is the one that `work` starts with; see `process.PATIENCE`.

        The process begins to come up, which takes seconds: nobody waits for it before there is work for it.
        """
        self._index = index
        self._work = work
        self._process = Process(partial(work.start, index), patience)
        self._process.begin()

    def kind(self) -> Kind:
        """See `workers.Gpu`."""
        return self._work.kind(self._index)

    def time(self, batch: Batch, seconds: float) -> tuple[Timing, ...]:
        """See `workers.Gpu`. Where a variant faults, the others are timed again without it."""
        budget = starting_now(seconds)
        left = dict(enumerate(batch.specs))
        found: dict[int, Timing] = {}
        while left and not (found and budget.is_spent):
            rest = replace(batch, specs=tuple(left.values()))
            self._wait()
            try:
                timings = self._process.call(self._work.time, rest, budget=budget)
                found |= dict(zip(left, timings, strict=True))
                break
            except Fault as fault:
                faulty = list(left) if fault.place is None else [list(left)[fault.place]]
                found |= dict.fromkeys(faulty, Timing(problem=str(fault)))
                left = {i: spec for i, spec in left.items() if i not in faulty}
            except FagenError as error:
                found |= dict.fromkeys(left, Timing(problem=str(error)))
                break
        return tuple(found.get(i, Timing()) for i in range(len(batch.specs)))

    def check(self, spec: Spec, shape: Shape, direction: str) -> str:
        """See `workers.Gpu`."""
        self._wait()
        try:
            return self._process.call(self._work.check, spec, shape, direction)
        except (Fault, FagenError) as error:
            return str(error)

    def close(self) -> None:
        """See `workers.Gpu`."""
        self._process.close()

    def _wait(self) -> None:
        """Until the process is up. Raises FagenError: that it is not is the fault of no variant."""
        try:
            self._process.wait()
        except Fault as fault:
            raise TuneError(f"GPU {self._index}: what was to work on it {fault}") from fault


class LocalCompiler:
    """See `workers.Compiler`."""

    def __init__(self, work: Work):
        """Does the `build` of `work`, in a process that starts when there is something to build."""
        self._work = work
        self._process = Process(patience=COMPILING)

    def build(self, spec: Spec, arch: str, direction: str) -> str:
        """See `workers.Compiler`."""
        try:
            if not self._is_built(spec, arch, direction):
                self._process.call(self._work.build, spec, arch, direction)
        except (Fault, FagenError) as error:
            return str(error)
        return ""

    def _is_built(self, spec: Spec, arch: str, direction: str) -> bool:
        """Raises the FagenError that a build would. What nobody foresaw is left for the process to meet."""
        try:
            return self._work.find(spec, arch, direction) is not None
        except FagenError:
            raise
        except Exception:
            return False

    def close(self) -> None:
        """See `workers.Compiler`."""
        self._process.close()
