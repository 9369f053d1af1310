"""Outcomes of tuning for people: the winners as a table, and in words what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from fagen.tune.outcome import Outcome
from fagen.tune.space import by_kind

TEXTS = ("shape", "pass", "spec", "choice")
NUMBERS = ("us", "TFLOP/s", "predicted us", "rank", "as it stands us", "times as fast", "timed")


def table(outcomes: Sequence[Outcome]) -> Table:
    """One row for each pass of each shape that has a winner; `rank` is its place by the cost model."""
    names = list(dict.fromkeys(outcome.question.name for outcome in outcomes))
    found = Table(box=SIMPLE_HEAD)
    for column in TEXTS:
        found.add_column(column, overflow="fold")
    for column in NUMBERS:
        found.add_column(column, justify="right")
    for outcome in sorted(outcomes, key=lambda outcome: names.index(outcome.question.name)):
        for row in rows(outcome):
            found.add_row(*map(escape, row))
    return found


def rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """The cells under TEXTS and NUMBERS, if there is a winner."""
    if winner := outcome.winner:
        yield (
            outcome.question.name,
            outcome.direction,
            winner.variant.base,
            str(winner.variant),
            f"{winner.seconds * 1e6:,.1f}",
            f"{outcome.tflops:,.1f}",
            f"{winner.predicted * 1e6:,.1f}",
            str(winner.rank),
            f"{winner.beat_seconds * 1e6:,.1f}",
            f"{winner.gain:.3f}",
            "known before" if outcome.stored else f"{outcome.timed} of {outcome.feasible}",
        )


def refusals(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """What the rules and the planner refused: a line for each kind of reason, with one variant's numbers."""
    return (f"refused: {line}" for line in by_kind(one for outcome in outcomes for one in outcome.refused))


def failures(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """What could not be built or run, was wrong, or has no winner at all."""
    for outcome in outcomes:
        for name, problem in outcome.failures:
            yield f"left out: {name} ({outcome.direction}, {outcome.question.name}): {problem}"
        if outcome.problem:
            yield f"{outcome.question.name}, {outcome.direction}: no winner: {outcome.problem}"
