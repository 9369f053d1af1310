"""The v3 kernel on one SM, work item after work item: what was done when, and what an item costs.

The run itself is in `timeline_roles.py`. It starts with empty rings and ends without a next item; its steady
state lies between the ends of the first item and of the last but one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial

from fagen.plan.engines import MUFU, TENSOR
from fagen.plan.timeline_kernel import Kernel
from fagen.plan.timeline_roles import ENGINES, LOAD, Event, run

# Tiles of the work items that are run to know what an item costs: between them and beyond each further tile
# costs the same.
KNOTS = (1, 2, 4, 16)
LINEAR = KNOTS[-1]
REMEMBERED = 4096  # kernels, each at some knots


@dataclass(frozen=True)
class Timeline:
    """Work items of one SM, one after another."""

    kernel: Kernel
    tiles: int  # K/V tiles of each
    events: tuple[Event, ...]
    ends: tuple[float, ...]  # of the work items
    busy: tuple[float, ...]  # cycles of each of ENGINES

    @property
    def start(self) -> float:
        """Where the steady state begins, in cycles."""
        return self.ends[0]

    @property
    def end(self) -> float:
        """Where it ends."""
        return self.ends[-2]

    @property
    def item_cycles(self) -> float:
        """Cycles from the end of one work item to the end of the next."""
        return (self.end - self.start) / (len(self.ends) - 2)

    def utilisation(self, engine: str) -> float:
        """Share of the steady state in which an engine works."""
        return sum(
            max(0.0, min(event.end, self.end) - max(event.start, self.start))
            for event in self.events
            if event.engine == engine
        ) / (self.end - self.start)

    @property
    def bound(self) -> str:
        """The engine that works most of the time."""
        return max(zip(self.busy, ENGINES, strict=True))[1]

    @property
    def roles(self) -> tuple[str, ...]:
        """Names of the roles, the load role first."""
        return (LOAD, *(f"math {i}" for i in range(self.kernel.warpgroups)))


def timeline(kernel: Kernel, tiles: int, items: int = 4, recorded: bool = True) -> Timeline:
    """A run of `items` (at least 3) work items of `tiles` (at least 1) K/V tiles each, and its events."""
    return Timeline(kernel, tiles, *run(kernel, tiles, items, recorded))


def item_cycles(kernel: Kernel) -> Callable[[int], float]:
    """Cycles that one more work item takes an SM, by its K/V tiles (at least 1)."""
    at = cache(partial(_drifting, kernel))  # a kernel takes longer to hash than all else here

    def cycles(tiles: int) -> float:
        after = min(max(bisect_left(KNOTS, tiles), 1), len(KNOTS) - 1)
        less, more = KNOTS[after - 1], KNOTS[after]
        low, high = at(less), at(more)
        return low + (high - low) * (tiles - less) / (more - less)

    return cycles


def start_cycles(kernel: Kernel, tiles: int) -> float:
    """Cycles that an SM's first and last work items take longer, of about that many tiles."""
    steady = pace(kernel, KNOTS[min(bisect_left(KNOTS, tiles), len(KNOTS) - 1)])
    return steady.ends[-1] - len(steady.ends) * steady.item_cycles


@lru_cache(REMEMBERED)
def pace(kernel: Kernel, tiles: int) -> Timeline:
    """A run without its events."""
    return timeline(kernel, tiles, recorded=False)


@lru_cache(REMEMBERED)
def _drifting(kernel: Kernel, tiles: int) -> float:
    """Cycles of a work item where warps drift apart.

    A run falls into step: no engine is idle while a warpgroup has a job for it. On the machine they drift,
    and sometimes an engine waits for warpgroups that all do something else, the more often the longer one of
    them would take alone (compare mean value analysis of a closed queueing network).
    """
    steady = pace(kernel, tiles)
    if kernel.warpgroups == 1:
        return steady.item_cycles
    busy = max(
        cycles for cycles, engine in zip(steady.busy, ENGINES, strict=True) if engine in (TENSOR, MUFU)
    )
    alone = pace(replace(kernel, warpgroups=1, pingpong=False), tiles).item_cycles
    both = alone * busy / len(steady.ends) / steady.item_cycles**2
    drift = kernel.costs.drift
    return steady.item_cycles * (1 + both**drift) ** (1 / drift)
