"""The rounds of many contests on the same GPUs: none waits until another's are over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fagen.tune.budget import Budget
from fagen.tune.contest import Contest
from fagen.tune.job import Batch, Workers
from fagen.tune.watch import Watch


def settle(contests: Sequence[Contest], workers: Workers, budget: Budget, watch: Watch) -> None:
    """Time until each contest is settled or the budget is spent: first come, first served."""
    todo: list[Batch] = []
    owners: list[Contest] = []  # of each of them
    left: Counter[Contest] = Counter()  # batches of the round that it is in

    def go_on(contest: Contest) -> None:
        """To the next round that is not known, if this one is timed throughout."""
        while not left[contest]:
            contest.halve()
            if contest.settled:
                return
            unsettled = sum(not one.settled for one in contests)
            batches = contest.batches(-(-workers.gpus // unsettled))
            todo.extend(batches)
            owners.extend([contest] * len(batches))
            left[contest] = len(batches)
            watch.more(len(batches))

    watch.stage("timing", 0)
    for contest in contests:
        go_on(contest)
    for batch, timings in workers.time(todo, budget) if todo and not budget.is_spent else ():
        contest = owners[next(i for i, asked in enumerate(todo) if asked is batch)]
        before = len(contest.failures)
        contest.take(batch, timings)
        left[contest] -= 1
        for name, problem in contest.failures[before:]:
            watch.note(f"{name} is left out: {problem.splitlines()[0]}")
        watch.step(f"{len(batch.specs)} variants")
        go_on(contest)
        if budget.is_spent:
            break
