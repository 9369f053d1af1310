"""Tuning from questions to answers that are kept: the forward of each, then the backward of what won."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fagen.compile.cache import ENV
from fagen.errors import TuneError
from fagen.plan.predict import predict
from fagen.tune import calibrated
from fagen.tune.atomic import check_writable
from fagen.tune.budget import Budget
from fagen.tune.entry import Entry, digest
from fagen.tune.job import Workers
from fagen.tune.journal import Journal
from fagen.tune.outcome import Outcome, Winner
from fagen.tune.question import Question
from fagen.tune.search import Task, search
from fagen.tune.space import Space, space
from fagen.tune.store import Store
from fagen.tune.tuned import tuned_name, write_spec
from fagen.tune.watch import Watch


@dataclass(frozen=True)
class Kept:
    """Where tuning keeps what it finds."""

    store: Store
    journal: Journal
    folder: Path  # of tuned specs

    def check_writable(self) -> None:
        """Raises TuneError where something cannot be kept: better before hours of work than after them."""
        setting = "--out"
        try:
            check_writable(self.folder)
            setting = ENV
            self.journal.check_writable()
            self.store.check_writable()
        except OSError as error:
            raise TuneError(f"{setting}: {error}; allowed: a directory that can be written") from error


@dataclass(frozen=True)
class Tuner:
    """Everything that tuning works with."""

    workers: Workers
    kept: Kept
    budget: Budget
    exhaustive: bool  # time all feasible variants
    watch: Watch

    def tune(self, questions: Sequence[Question]) -> Iterator[Outcome]:
        """What comes of the forward of each question, then of the backward of each winner that has one.

        A winner is in the store and in a spec file when it is yielded. Raises TuneError where nothing fits
        for any question; KeyboardInterrupt, after which a rerun goes on from what was timed.
        """
        for note in _idle_lists(questions):
            self.watch.note(note)
        specs = [spec for question in questions for spec in question.specs.values()]
        has_backward = any("backward" in spec.problem.passes for spec in specs)
        budget = self.budget.part(0.5) if has_backward else self.budget
        forwards: dict[str, Outcome] = {}  # by the name of the file
        backwards: list[Question] = []
        for outcome in self._pass(questions, "forward", budget):
            if outcome.winner:
                forwards[_name(outcome, outcome.winner)] = outcome
                backwards += _backward(outcome.question, outcome.winner)
                self._write(outcome.winner, outcome)
            yield outcome
        for outcome in self._pass(backwards, "backward", self.budget):
            if outcome.winner:
                self._write(outcome.winner, forwards[_name(outcome, outcome.winner)], outcome)
            yield outcome

    def _pass(self, questions: Sequence[Question], direction: str, budget: Budget) -> Iterator[Outcome]:
        tasks, misfits = [], []
        spaces: dict[tuple[str, ...], Space] = {}  # shapes with the same problem have the same
        self.watch.stage("planning", len(questions))
        for question in questions:
            names = tuple(spec.name for spec in question.specs.values())
            try:
                if names not in spaces:
                    spaces[names] = space(question.specs, direction, self.workers.kind.arch)
                tasks.append(Task(question, direction, spaces[names]))
            except TuneError as error:
                misfits.append(Outcome(question, direction, None, problem=str(error)))
            self.watch.step(question.name)
        if misfits and not tasks:
            raise TuneError("\n".join(misfit.problem for misfit in misfits))
        known = [self._known(task) for task in tasks]
        yield from misfits
        yield from (outcome for outcome in known if outcome)
        if unknown := [task for task, outcome in zip(tasks, known, strict=True) if not outcome]:
            found = search(unknown, self.workers, self.kept.journal, budget, self.exhaustive, self.watch)
            for task, outcome in found:
                if outcome.winner:
                    self._put(task, outcome, outcome.winner)
                yield outcome

    def _asked(self, task: Task) -> str:
        return digest([task.space.digest, self.exhaustive])

    def _known(self, task: Task) -> Outcome | None:
        """The stored result of the very same question, if there is one."""
        question, shape = task.question, task.question.shape
        where = self.workers.kind.where
        entry = self.kept.store.find(question.problem, shape, task.direction, where)
        if entry is None or entry.shape != shape or entry.asked != self._asked(task):
            return None
        if entry.budget is not None and self.budget.seconds > entry.budget:
            return None  # there is time to do better
        kept = entry.spec.family, entry.tiling
        for variant in task.space.variants:
            if (variant.spec.family, variant.plan.tiling) == kept:
                break
        else:  # somebody edited it
            return None
        winner = Winner(
            variant=variant,
            seconds=entry.seconds,
            predicted=predict(variant.plan, shape, calibrated.efficiencies(where.gpu)).seconds,
            rank=entry.rank,
            beat=entry.beat,
            beat_seconds=entry.beat_seconds,
            measured=entry.measured,
        )
        return Outcome(
            question, task.direction, winner, entry.timed, entry.feasible, task.space.refused, stored=True
        )

    def _put(self, task: Task, outcome: Outcome, winner: Winner) -> None:
        entry = Entry(
            problem=winner.variant.spec.problem,
            shape=task.question.shape,
            direction=task.direction,
            where=self.workers.kind.where,
            spec=winner.variant.spec,
            tiling=winner.variant.plan.tiling,
            seconds=winner.seconds,
            beat=winner.beat,
            beat_seconds=winner.beat_seconds,
            asked=self._asked(task),
            timed=outcome.timed,
            feasible=outcome.feasible,
            rank=winner.rank,
            measured=winner.measured,
            budget=self.budget.seconds if outcome.cut_short else None,
        )
        self.kept.store.put(entry)

    def _write(self, winner: Winner, *passes: Outcome) -> None:
        name = _name(passes[0], winner)
        write_spec(self.kept.folder, winner.variant.spec, name, passes, self.workers.kind.where)


def _name(outcome: Outcome, winner: Winner) -> str:
    return tuned_name(winner.variant.base, outcome.question.name)


def _idle_lists(questions: Sequence[Question]) -> Iterator[str]:
    """Which specs have lists for a pass that they do not have."""
    forwards = {
        base: [key for key in spec.tune if key.startswith("backward.")]
        for question in questions
        for base, spec in question.specs.items()
        if "backward" not in spec.problem.passes
    }
    for base, keys in forwards.items():
        if keys:
            yield f"{base}: the lists for {', '.join(keys)} are not tried: problem.passes is [forward]"


def _backward(question: Question, winner: Winner) -> list[Question]:
    """The question of the backward of what won the forward, if it has one: with the lists of its base."""
    variant = winner.variant
    if "backward" not in variant.spec.problem.passes:
        return []
    spec = variant.spec.model_copy(update={"tune": question.specs[variant.base].tune})
    return [replace(question, specs={variant.base: spec})]
