"""The order of templates/include/fagen/sched/longest_first.cuh."""

from __future__ import annotations

from collections.abc import Iterator


def longest_first(pairs: int, tiles: int, abreast: int) -> Iterator[tuple[int, int]]:
    """(pair, tile) of each work item: `tiles` of each pair, of which the last ones have the most to do."""
    shortest = tiles // 4
    for first in range(0, pairs, abreast):
        for tile in reversed(range(shortest, tiles)):
            yield from ((pair, tile) for pair in range(first, min(first + abreast, pairs)))
    for tile in reversed(range(shortest)):
        yield from ((pair, tile) for pair in range(pairs))
