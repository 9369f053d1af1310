"""What tuning one pass on one shape came to."""

from __future__ import annotations

from dataclasses import dataclass

from fagen.plan.predict import flops
from fagen.tune.question import Question
from fagen.tune.space import Variant


@dataclass(frozen=True)
class Winner:
    """The fastest right variant. Seconds are medians, on the device."""

    variant: Variant
    seconds: float
    predicted: float  # seconds, by the cost model
    rank: int  # of the variants that are feasible, by the cost model; the first is 1
    beat: str  # name of the spec that was the fastest as it stood
    beat_seconds: float  # its own, where that spec is the winner
    measured: str  # the day, "2026-11-30"

    @property
    def gain(self) -> float:
        """How many times as fast as what it beat."""
        return self.beat_seconds / self.seconds


@dataclass(frozen=True)
class Outcome:
    """The winner, and what became of the others."""

    question: Question
    direction: str
    winner: Winner | None
    timed: int = 0  # variants
    feasible: int = 0
    refused: tuple[tuple[str, str], ...] = ()  # choice in words, why
    failures: tuple[tuple[str, str], ...] = ()  # name of a variant's spec, why it dropped out
    cut_short: bool = False  # by the end of the budget
    stored: bool = False  # known from an earlier tuning: nothing was timed
    problem: str = ""  # why there is no winner

    @property
    def tflops(self) -> float:
        """TFLOP/s of the winner, visible pairs only; 0 without one."""
        if self.winner is None:
            return 0.0
        return flops(self.winner.variant.plan, self.question.shape) / self.winner.seconds / 1e12
