"""Contenders in one case: each is checked, its memory measured; those that are right are timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from fagen.bench.allocated import Allocator
from fagen.bench.case import Case
from fagen.bench.check import Check
from fagen.bench.clock import ROUNDS, Clock, interleaved

OURS = "fagen"
DETERMINISTIC = "fagen deterministic"  # the op with problem.deterministic
QUANTISING = "fagen quantising"  # an op of 8 bits on 16-bit q, k and v, which it quantises first

Call = Callable[[], Any]


def is_ours(name: str) -> bool:
    """Whether a contender is the op, in one of its modes or dtypes; else it is a peer."""
    return name.startswith(OURS)


@dataclass(frozen=True)
class Outcome:
    """What one contender did in one case."""

    error: float | None = None  # see Check; None: it gave no result
    seconds: tuple[float, ...] = ()  # on the device, one per round; empty: not timed
    peak_bytes: int | None = (
        None  # most that it has allocated beside the inputs, in a warm call; None: unknown
    )
    problem: str = ""  # why it was not timed

    @property
    def median(self) -> float | None:
        """Median time."""
        return median(self.seconds) if self.seconds else None


@dataclass(frozen=True)
class Result:
    """All contenders of one case."""

    case: Case
    allowed: float  # error
    outcomes: Mapping[str, Outcome]

    def tflops(self, name: str) -> float | None:
        """TFLOP/s of a contender, see case.FLOPS; None where it was not timed."""
        seconds = self._median(name)
        return None if seconds is None else self.case.flops / seconds / 1e12

    def ratio(self, peer: str, contender: str = OURS) -> float | None:
        """How many times as fast as `peer` the contender is; None where one of them was not timed."""
        ours, theirs = self._median(contender), self._median(peer)
        return None if ours is None or theirs is None else theirs / ours

    def _median(self, name: str) -> float | None:
        return self.outcomes[name].median if name in self.outcomes else None


def compare(
    case: Case,
    check: Check,
    contenders: Mapping[str, Callable[[], Call]],
    clock: Clock,
    allocator: Allocator,
    rounds: int = ROUNDS,
) -> Result:
    """Set up and check each contender, then time those that are right, `rounds` times (see bench.clock).

    What a contender keeps between its calls counts to its memory, e.g. what its forward saves for a backward.
    One that fails, also while it is timed, does not stop the others.
    """
    calls: dict[str, _Watched] = {}
    outcomes: dict[str, Outcome] = {}
    for name, set_up in contenders.items():
        try:
            outcomes[name], call = _checked(set_up, check, allocator)
        except Exception as failure:  # libraries assert, too
            outcomes[name] = Outcome(problem=f"cannot run: {_first_line(failure)}")
        else:
            if not outcomes[name].problem:
                calls[name] = _Watched(call)
            del call  # what a wrong one holds
        allocator.release()
    times = interleaved(list(calls.values()), clock, rounds)
    for (name, call), seconds in zip(calls.items(), times, strict=True):
        if call.problem:
            outcomes[name] = replace(outcomes[name], problem=call.problem)
        else:
            outcomes[name] = replace(outcomes[name], seconds=seconds)
    return Result(case, check.allowed, outcomes)


@dataclass
class _Watched:
    """A call that keeps what it raises to itself, and does nothing any more after that."""

    call: Call
    problem: str = ""

    def __call__(self) -> None:
        if self.problem:
            return
        try:
            self.call()
        except Exception as failure:
            self.problem = f"cannot run again: {_first_line(failure)}"


def _checked(set_up: Callable[[], Call], check: Check, allocator: Allocator) -> tuple[Outcome, Call]:
    before = allocator.allocated()
    call = set_up()
    error = check.error(call())
    if not error <= check.allowed:  # also NaN
        return Outcome(error, problem=f"wrong: error {error:.2e}; allowed {check.allowed:.2e}"), call
    allocator.reset_peak()
    call()
    return Outcome(error, peak_bytes=allocator.peak() - before), call


def _first_line(failure: Exception) -> str:
    return next(iter(str(failure).splitlines()), type(failure).__name__)
