"""A pass of many questions at once: rank, build, time by halving, check. All of them share the GPUs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain, zip_longest

from fagen.tune import calibrated
from fagen.tune.budget import Budget
from fagen.tune.contest import Contest
from fagen.tune.job import Workers
from fagen.tune.journal import Journal, Record
from fagen.tune.outcome import Outcome, Winner
from fagen.tune.question import Question
from fagen.tune.rank import Entrant, Ranking, in_order_of_trial, rankings, to_be_timed
from fagen.tune.rounds import settle
from fagen.tune.space import Space, by_kind
from fagen.tune.spread import spread
from fagen.tune.watch import Watch

BUILDING, TIMING = 0.5, 0.8  # shares of a budget, and of what building leaves of it


@dataclass(frozen=True)
class Task:
    """A pass of a question, and the variants of it."""

    question: Question
    direction: str
    space: Space


@dataclass(frozen=True)
class _Field:
    """The variants of a task that are built."""

    ranking: Ranking
    entrants: tuple[Entrant, ...]
    failures: tuple[tuple[str, str], ...]
    is_whole: bool  # as many as are to be timed


def search(
    tasks: Sequence[Task], workers: Workers, journal: Journal, budget: Budget, exhaustive: bool, watch: Watch
) -> Iterator[tuple[Task, Outcome]]:
    """What comes of each task, which all have one direction, as soon as its winner is checked.

    Where the budget ends it early a winner is the best of what was timed by then. Raises KeyboardInterrupt;
    all that was timed is in the journal then.
    """
    watch.stage("predicting", sum(len(task.space.variants) for task in tasks))
    asked = [(task.space, task.question.shape) for task in tasks]
    gpu = workers.kind.where.gpu
    ranked = rankings(asked, calibrated.efficiencies(gpu), lambda count: watch.step("", count))
    fields = _build(tasks, ranked, exhaustive, workers, budget.part(BUILDING), watch)
    contests = [
        Contest(task.question.shape, task.direction, field.entrants, journal, workers.kind.where)
        if field.entrants
        else None
        for task, field in zip(tasks, fields, strict=True)
    ]
    settle([contest for contest in contests if contest], workers, budget.part(TIMING), watch)
    watch.stage("checking", len(tasks))
    finished = list(zip(tasks, fields, contests, strict=True))
    checked = spread(finished, range(workers.gpus), lambda _, one: _outcome(*one, workers, watch))
    for (task, *_), outcome in checked:
        watch.step(task.question.name)
        yield task, outcome


def _build(
    tasks: Sequence[Task],
    ranked: Sequence[Ranking],
    exhaustive: bool,
    workers: Workers,
    budget: Budget,
    watch: Watch,
) -> list[_Field]:
    """As many variants of each task as are to be timed; in the place of one that cannot be built the next."""
    waiting = [deque(in_order_of_trial(one.entrants)) for one in ranked]
    wanted = [to_be_timed(len(one.entrants), exhaustive) for one in ranked]
    problems: dict[str, str] = {}  # by name of a spec that was tried; "" where it was built
    chosen: list[list[Entrant]] = [[] for _ in tasks]
    while not budget.is_spent:
        wave = [
            [queue.popleft() for _ in range(min(number - _count(picked, problems), len(queue)))]
            for queue, number, picked in zip(waiting, wanted, chosen, strict=True)
        ]
        for picked, more in zip(chosen, wave, strict=True):
            picked += more
        # The best of each task before the second best of any.
        ordered = [entrant for entrant in chain(*zip_longest(*wave)) if entrant]
        specs = {entrant.variant.spec.name: entrant.variant.spec for entrant in ordered}
        untried = [spec for name, spec in specs.items() if name not in problems]
        if not ordered:
            break
        watch.stage("building", len(untried))
        for spec, problem in workers.build(untried, tasks[0].direction, budget) if untried else ():
            problems[spec.name] = problem
            watch.step(spec.name)
            if problem:
                watch.note(f"{spec.name} is left out: {problem.splitlines()[0]}")
            if budget.is_spent:
                break
    return [
        _field(one, picked, problems, not queue or _count(picked, problems) >= number)
        for one, picked, queue, number in zip(ranked, chosen, waiting, wanted, strict=True)
    ]


def _count(picked: Sequence[Entrant], problems: dict[str, str]) -> int:
    """How many of those picked were built."""
    return sum(problems.get(entrant.variant.spec.name) == "" for entrant in picked)


def _field(ranked: Ranking, picked: Sequence[Entrant], problems: dict[str, str], is_enough: bool) -> _Field:
    names = [(entrant, entrant.variant.spec.name) for entrant in picked]
    tried = [(entrant, name) for entrant, name in names if name in problems]
    return _Field(
        ranked,
        tuple(entrant for entrant, name in tried if not problems[name]),
        tuple((name, problems[name]) for _, name in tried if problems[name]),
        is_enough and len(tried) == len(names),
    )


def _outcome(task: Task, field: _Field, contest: Contest | None, workers: Workers, watch: Watch) -> Outcome:
    """The fastest of a contest that is right."""
    standings = contest.standings if contest else []
    failures = [*field.failures, *(contest.failures if contest else ())]
    winner = None
    for entrant, record in standings:
        spec = entrant.variant.spec
        if problem := workers.check(spec, task.question.shape, task.direction):
            failures.append((spec.name, problem))
            watch.note(f"{spec.name} is wrong and left out: {problem.splitlines()[0]}")
        else:
            rank = 1 + field.ranking.entrants.index(entrant)
            winner = _winner(entrant, record, rank, standings)
            break
    return Outcome(
        question=task.question,
        direction=task.direction,
        winner=winner,
        timed=len(standings),
        feasible=len(field.ranking.entrants),
        refused=field.ranking.refused,
        failures=tuple(failures),
        cut_short=not (field.is_whole and contest and contest.settled),
        problem="" if winner else _why(field, failures, standings),
    )


def _winner(
    entrant: Entrant, record: Record, rank: int, standings: Sequence[tuple[Entrant, Record]]
) -> Winner:
    stood = [(other, its) for other, its in standings if other.variant.as_it_stands]
    beat, its = min(stood, key=lambda pair: pair[1].ratio, default=(entrant, record))
    return Winner(
        variant=entrant.variant,
        seconds=record.seconds,
        predicted=entrant.predicted,
        rank=rank,
        beat=beat.variant.base,
        beat_seconds=record.seconds * its.ratio / record.ratio,
        measured=date.today().isoformat(),
    )


def _why(field: _Field, failures: Sequence[tuple[str, str]], standings: Sequence[object]) -> str:
    """Why there is no winner."""
    if not field.ranking.entrants:
        return "\n".join(by_kind(field.ranking.refused))
    if failures and (standings or not field.entrants):
        name, problem = failures[-1]
        return f"no variant can be used, e.g. {name}: {problem.splitlines()[0]}"
    return "the budget ended before any variant was timed"
