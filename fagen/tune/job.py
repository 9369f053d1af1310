"""What the tuner asks of a machine with GPUs, however many there are and wherever they stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol

from fagen.plan.launch import Shape
from fagen.spec.model import Spec
from fagen.tune.budget import ENDLESS, Budget
from fagen.tune.store import Where


@dataclass(frozen=True)
class Batch:
    """Variants to be timed against each other: in turns, on one GPU, on the same inputs.

    In a backward the first spec's forward gives the out and LSE that all are handed.
    """

    specs: tuple[Spec, ...]  # of one problem
    shape: Shape
    direction: str  # "forward" or "backward"
    rounds: int  # times that each is timed


@dataclass(frozen=True)
class Timing:
    """What came of one variant in a batch."""

    seconds: tuple[float, ...] = ()  # on the device, one per round; empty where it was not timed
    problem: str = ""  # why it was not timed: it was not built, not launched, crashed its process or hung it;
    # with neither, time was up


class Kind(NamedTuple):
    """What GPUs are alike in, so that times on one are times on the other."""

    arch: str  # "sm_90a"
    where: Where  # what measurements hold for


class Workers(Protocol):
    """GPUs of one kind that variants are timed on, and CPUs that compile them."""

    kind: Kind
    gpus: int

    def build(
        self, specs: Sequence[Spec], direction: str, budget: Budget = ENDLESS
    ) -> Iterator[tuple[Spec, str]]:
        """Compile a pass of each spec, many at a time, so that no GPU waits for it.

        Yields the specs as they are done, each with what is wrong with it; "": nothing. Where there is one
        it waits for no more when `budget` is over.
        """
        ...

    def time(
        self, batches: Sequence[Batch], budget: Budget = ENDLESS
    ) -> Iterator[tuple[Batch, tuple[Timing, ...]]]:
        """Time the batches, spread over all GPUs; yields them as they are done, with a timing per spec.

        Batches may be appended while it yields.

        A variant that cannot be timed has a problem in words and spoils no other's timing, unless `budget` is
        over when it comes up.
        """
        ...

    def check(self, spec: Spec, shape: Shape, direction: str) -> str:
        """What is wrong with a pass's results on random inputs, with numbers; "": they are right.

        As many threads as there are GPUs may ask at a time.
        """
        ...

    def close(self) -> None:
        """End all processes, whatever they are at."""
        ...

    def __enter__(self) -> Workers: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
