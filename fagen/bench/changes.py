"""Two documents of the same cases: what got slower, and what faster, by more than the noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from fagen.bench.compare import is_ours
from fagen.bench.document import Document, identity

# Medians of one kernel differ by this much from run to run, whatever the spread within a run is.
FLOOR = 0.02
RULE = (
    "a median counts as changed where it moved by more than the noise: the sum of both runs' interquartile "
    f"ranges, and at least {FLOOR:.0%} of the old median"
)
SLOWER, FASTER, LOST = "slower", "faster", "no longer timed"


@dataclass(frozen=True)
class Change:
    """One contender in one case of two runs, changed by more than the noise."""

    case: str
    contender: str
    old_us: float
    new_us: float | None  # None: not timed any more
    noise: float  # share of the old median
    verdict: str  # SLOWER | FASTER | LOST

    @property
    def is_worse(self) -> bool:
        """Whether it is one of ours, and slower or gone."""
        return self.verdict != FASTER and is_ours(self.contender)


@dataclass(frozen=True)
class Comparison:
    """All changes between two runs, and how much there was to compare."""

    changes: tuple[Change, ...]
    compared: int  # medians
    machines: tuple[str, ...]  # what differs between the machines, in words

    @property
    def is_worse(self) -> bool:
        """Whether something of ours got slower."""
        return any(change.is_worse for change in self.changes)


def compared(old: Document, new: Document) -> Comparison:
    """Every contender of `new` that `old` has timed in the same case."""
    before = {identity(case): case for case in old["cases"]}
    pairs = [(before[key], case) for case in new["cases"] if (key := identity(case)) in before]
    medians = [
        (case, name, found, case["contenders"][name])
        for past, case in pairs
        for name, found in past["contenders"].items()
        if found["median_us"] is not None and name in case["contenders"]
    ]
    changes = [change for one in medians if (change := _change(*one))]
    return Comparison(tuple(changes), len(medians), tuple(_differences(old["machine"], new["machine"])))


def changes_table(found: Comparison) -> Table:
    """A row per change, ours first, the largest first."""
    made = Table(box=None, pad_edge=False, caption=f"{found.compared} medians compared; {RULE}")
    made.caption_justify = "left"
    for heading in ("case", "contender"):
        made.add_column(heading)
    for heading in ("old us", "new us", "change", "noise", ""):
        made.add_column(heading, justify="right", no_wrap=True)
    for change in sorted(found.changes, key=lambda one: (not one.is_worse, one.contender, -abs(_moved(one)))):
        new = "-" if change.new_us is None else f"{change.new_us:,.1f}"
        made.add_row(
            *(change.case, change.contender, f"{change.old_us:,.1f}", new),
            *(
                "-" if change.new_us is None else f"{_moved(change):+.1%}",
                f"{change.noise:.1%}",
                change.verdict,
            ),
        )
    return made


def _change(case: dict[str, Any], name: str, old: dict[str, Any], new: dict[str, Any]) -> Change | None:
    where = f"{case['spec']}, {case['shape_name']}, {case['mode']}"
    before, after = old["median_us"], new["median_us"]
    if after is None:
        return Change(where, name, before, None, 0.0, LOST)
    noise = max(FLOOR, (_spread(old["quartiles_us"]) + _spread(new["quartiles_us"])) / before)
    if abs(after - before) <= noise * before:
        return None
    return Change(where, name, before, after, noise, SLOWER if after > before else FASTER)


def _spread(quartiles: Sequence[float]) -> float:
    return quartiles[-1] - quartiles[0]


def _moved(change: Change) -> float:
    return 0.0 if change.new_us is None else change.new_us / change.old_us - 1


def _differences(old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    for key in dict.fromkeys((*old, *new)):
        if key not in NOT_COMPARED and old.get(key) != new.get(key):
            yield f"{key}: was {old.get(key, 'unknown')}, is {new.get(key, 'unknown')}"


NOT_COMPARED = ("time", "sm_clock", "memory_clock")  # of the moment
