from __future__ import annotations

from collections.abc import Iterator, Sequence

from fake_workers import FakeWorkers

from fagen.bench.shapes import NamedShape
from fagen.plan.launch import Shape
from fagen.tune.budget import ENDLESS, Budget
from fagen.tune.job import Batch, Timing
from fagen.tune.watch import Silent

SHORT = NamedShape("short", {}, Shape(4, 1024, 1024, 8, 8))
SLOW = NamedShape("slow", {}, Shape(2, 4096, 4096, 8, 8))


class SlowIsLast(FakeWorkers):
    """Whatever there is to time of another shape comes before that of SLOW."""

    def time(
        self, batches: Sequence[Batch], budget: Budget = ENDLESS
    ) -> Iterator[tuple[Batch, tuple[Timing, ...]]]:
        done: list[Batch] = []
        while left := [batch for batch in batches if not any(batch is other for other in done)]:
            done.append(min(left, key=lambda batch: batch.shape == SLOW.shape))
            yield from super().time(done[-1:])


class Counting(Silent):
    """Of the steps of timing."""

    steps, done, is_timing = 0, 0, False

    def stage(self, name: str, steps: int) -> None:
        self.is_timing = name == "timing"
        self.more(steps)

    def more(self, steps: int) -> None:
        self.steps += self.is_timing * steps

    def step(self, what: str, steps: int = 1) -> None:
        self.done += self.is_timing * steps


def test_no_contest_waits_for_the_rounds_of_another(bench, mine) -> None:
    workers = SlowIsLast(gpus=2)
    outcomes = bench.tune(mine(), workers=workers, shapes=[SLOW, SHORT])
    assert all(outcome.winner and not outcome.cut_short for outcome in outcomes)
    asked = [batch.shape == SLOW.shape for batch in workers.batches]
    assert asked == sorted(asked)
    for shape in (SLOW.shape, SHORT.shape):
        rounds = [batch.rounds for batch in workers.batches if batch.shape == shape]
        assert rounds == sorted(rounds) and set(rounds) == {5, 10, 20, 40}


def test_the_last_contest_has_all_gpus(bench, mine) -> None:
    """Of two contests each has a GPU; when one is settled the other's rounds are cut in two."""
    workers = SlowIsLast(gpus=2)
    bench.tune(mine(), workers=workers, shapes=[SLOW, SHORT])
    slow = [batch for batch in workers.batches if batch.shape == SLOW.shape and batch.rounds == 10]
    assert len(slow) == 2


def test_each_batch_is_a_step(bench, mine) -> None:
    watch, workers = Counting(), FakeWorkers()
    bench.tune(mine(), workers=workers, shapes=[SLOW, SHORT], watch=watch)
    assert watch.steps == watch.done == len(workers.batches)
