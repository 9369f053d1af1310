"""How long work items keep the slots of a device busy: CTAs of a grid, or items that CTAs take one by one.

`in_rounds`, `as_freed` and `asked_ahead` are the ways of handing them out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from heapq import heapify, heapreplace

from fagen.plan.order import longest_first

COUNTED = 8_192  # items that are handed out one by one; what comes after them goes on as they did
REMEMBERED = 64  # orders: variants that differ elsewhere have the same
SCATTER = 0.618  # multiples of it, less their whole parts, come in no order

HandOut = Callable[[Sequence[float], int], float]  # costs in order, slots: when the last slot is through


def busy(
    cost: Callable[[int], float], tiles: int, pairs: int, abreast: int | None, slots: int, hand_out: HandOut
) -> float:
    """When the last slot is through with the tiles of all (sequence, head) pairs.

    `cost` is that of a tile, by its number; `abreast`: of longest first, None: one pair after another, its
    tiles in order.
    """
    counted = min(pairs, COUNTED // tiles)
    if not counted:
        step = -(-tiles // COUNTED)
        return pairs * step * sum(map(cost, range(0, tiles, step))) / slots
    costs = [cost(tile) for tile in range(tiles)]
    return hand_out([costs[i] for i in order(counted, tiles, abreast)], slots) * pairs / counted


@lru_cache(REMEMBERED)
def order(pairs: int, tiles: int, abreast: int | None) -> Sequence[int]:
    """The tile of each work item, as templates/include/fagen/sched has them."""
    if abreast is None:
        return list(range(tiles)) * pairs
    return [tile for _, tile in longest_first(pairs, tiles, abreast)]


def in_rounds(costs: Sequence[float], slots: int) -> float:
    """The longest slot where each round hands out an item per slot, forwards and backwards in turns."""
    busy = [0.0] * slots
    for number, first in enumerate(range(0, len(costs), slots)):
        for place, cost in enumerate(costs[first : first + slots]):
            busy[place if number % 2 == 0 else -1 - place] += cost
    return max(busy)


def as_freed(costs: Sequence[float], slots: int) -> float:
    """The last end where the slot that is free first gets the next item."""
    ends = [0.0] * slots
    for cost in costs:
        heapreplace(ends, ends[0] + cost)
    return max(ends)


def asked_ahead(costs: Sequence[float], slots: int) -> float:
    """The last end where a slot asks for its next item when it starts on one, as `sched/counter.cuh` does.

    So who has begun a long item may have another one to come. Those that ask at the same time, as all do at
    the start, come in no order.
    """
    asking = [(0.0, place * SCATTER % 1, cost) for place, cost in enumerate(costs[:slots])]
    heapify(asking)  # (when a slot asks, its turn among others, when it is through with what it has)
    for cost in costs[slots:]:
        _, turn, end = asking[0]
        heapreplace(asking, (end, turn, end + cost))
    return max(end for _, _, end in asking)
