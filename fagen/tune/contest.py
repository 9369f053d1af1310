"""Successive halving (Jamieson and Talwalkar, 2016): a few rounds for all, twice as many for the better half.

Every batch has the same reference in it, a spec as it stands, and what counts is a variant's time over the
reference's in that batch: clocks differ between batches and GPUs, and all the more between days.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from fagen.plan.launch import Shape
from fagen.tune.entry import Where
from fagen.tune.job import Batch, Timing
from fagen.tune.journal import Journal, Record
from fagen.tune.rank import Entrant

FIRST_ROUNDS = 5  # of each variant
LAST_ROUNDS = 20  # at least, of a winner
MOST_ROUNDS = 40
LEAST_ROUNDS = 3  # of slow kernels, whose times differ the less
VARIANT_SECONDS = 1.0  # that a variant may keep the GPU busy, if that leaves it so many rounds
BATCH = 7  # variants timed beside one reference: what is lost with a batch that is cut off
BATCH_SECONDS = 3.0  # that a batch may keep the GPU busy, if that leaves it a variant
REPEATS = 3  # times that a round runs a kernel: there, back, and to warm up


class Contest:
    """The variants of one pass on one shape, until one is left."""

    def __init__(
        self, shape: Shape, direction: str, entrants: Sequence[Entrant], journal: Journal, where: Where
    ):
        """At least one entrant; the first is the reference."""
        self.shape = shape
        self.direction = direction
        self.failures: list[tuple[str, str]] = []  # name of a variant's spec, why it dropped out
        self.settled = False
        self._journal = journal
        self._where = where
        self._entrants = {entrant.variant.key: entrant for entrant in entrants}
        self._field = list(self._entrants)  # still in it
        self._slower: list[str] = []  # no longer in it, the fastest first
        self._reference = self._field[0]
        self._latest: dict[str, Record] = {}  # of each entrant that was timed
        affordable = int(VARIANT_SECONDS / (entrants[0].predicted * REPEATS))
        self._most = min(max(affordable, LEAST_ROUNDS), MOST_ROUNDS)  # rounds
        self._rounds = min(FIRST_ROUNDS if len(self._field) > 2 else LAST_ROUNDS, self._most)
        self._recall()

    @property
    def standings(self) -> list[tuple[Entrant, Record]]:
        """Everything timed, the fastest first; those that were in it longer before the others."""
        field = [key for key in self._field if key in self._latest]
        keys = [*sorted(field, key=self._ratio), *(key for key in self._slower if key in self._latest)]
        return [(self._entrants[key], self._latest[key]) for key in keys]

    def batches(self, pieces: int) -> list[Batch]:
        """What this round of halving has yet to time, in at least so many pieces if it can be cut up."""
        missing = [key for key in self._field if not self._is_timed(key)]
        rivals = [key for key in missing if key != self._reference]
        if missing and not rivals:
            return [self._batch([])]
        seconds = max((self._entrants[key].predicted for key in (self._reference, *rivals)), default=0.0)
        fitting = int(BATCH_SECONDS / max(seconds * self._rounds * REPEATS, 1e-9)) - 1
        size = max(1, min(BATCH, fitting, -(-len(rivals) // pieces)))
        return [self._batch(rivals[first : first + size]) for first in range(0, len(rivals), size)]

    def take(self, batch: Batch, timings: Sequence[Timing]) -> None:
        """What came of a batch; it is in the journal when this returns. Raises OSError."""
        by_name = {entrant.variant.spec.name: key for key, entrant in self._entrants.items()}
        timed = {by_name[spec.name]: timing for spec, timing in zip(batch.specs, timings, strict=True)}
        first = next(iter(timed))  # the reference when the batch was made
        records = [
            self._record(key, timing, first if timed[first].seconds else key, timed, batch.rounds)
            for key, timing in timed.items()
            if timing.seconds
        ]
        self._journal.append(records)
        self._latest |= {one.kernels: one for one in records if one.reference == self._reference}
        for key, timing in timed.items():
            if timing.problem:
                self._drop(key, timing.problem)

    def halve(self) -> None:
        """End a round of halving that is timed throughout: the better half stays, for twice the rounds."""
        if self.settled or not all(map(self._is_timed, self._field)):
            return
        ordered = sorted(self._field, key=self._ratio)
        half = -(-len(ordered) // 2)
        self._field, self._slower = ordered[:half], ordered[half:] + self._slower
        self.settled = half == 1 and self._rounds >= min(LAST_ROUNDS, self._most)
        self._rounds = min(2 * self._rounds, self._most)
        self._recall()

    def _drop(self, key: str, problem: str) -> None:
        """Takes an entrant out. If it is the reference, the next takes its place and all are timed again."""
        if key not in (*self._field, *self._slower):  # two batches had it
            return
        self.failures.append((self._entrants[key].variant.spec.name, problem))
        self._field = [other for other in self._field if other != key]
        self._slower = [other for other in self._slower if other != key]
        self._latest.pop(key, None)
        if key == self._reference:
            self._latest.clear()
            self._field, self._slower = self._field + self._slower, []
            self._reference = self._field[0] if self._field else ""
            self._recall()
        self.settled = not self._field

    def _recall(self) -> None:
        """Takes what the journal has on this round of halving."""
        asked = self._shape_and_rounds()
        for key in self._field:
            if record := self._journal.find(self._where, key, *asked, self._reference):
                self._latest[key] = record

    def _is_timed(self, key: str) -> bool:
        return key in self._latest and self._latest[key].rounds == self._rounds

    def _ratio(self, key: str) -> float:
        return self._latest[key].ratio

    def _shape_and_rounds(self) -> tuple[Shape, str, int]:
        return self.shape, self.direction, self._rounds

    def _batch(self, rivals: Sequence[str]) -> Batch:
        specs = [self._entrants[key].variant.spec for key in (self._reference, *rivals)]
        return Batch(tuple(specs), *self._shape_and_rounds())

    def _record(
        self, key: str, timing: Timing, reference: str, timed: Mapping[str, Timing], rounds: int
    ) -> Record:
        return Record(
            where=self._where,
            spec=self._entrants[key].variant.spec,
            kernels=key,
            shape=self.shape,
            direction=self.direction,
            predicted=self._entrants[key].predicted,
            rounds=rounds,
            seconds=median(timing.seconds),
            reference=reference,
            reference_seconds=median(timed[reference].seconds),
        )
