"""Blocks under a causal mask, against walks over them."""

import itertools

import pytest

from fagen.plan.causal import Blocks, floor_sum

LENGTHS = (0, 1, 15, 16, 17, 100, 333)
TILES = ((16, 16), (16, 48), (48, 16), (64, 40), (7, 5), (400, 3))


def walk(blocks: Blocks) -> list[tuple[int, int]]:
    """(queries, keys) of every block in which some query sees some key."""
    offset = blocks.seqlen_k - blocks.seqlen_q

    def tiles(rows: int, tile: int) -> list[range]:
        return [range(start, min(start + tile, rows)) for start in range(0, rows, tile)]

    return [
        (len(queries), len(keys))
        for queries in tiles(blocks.seqlen_q, blocks.tile_q)
        for keys in tiles(blocks.seqlen_k, blocks.tile_kv)
        if keys[0] <= queries[-1] + offset
    ]


@pytest.mark.parametrize("tiles", TILES, ids=str)
def test_counts_are_those_of_a_walk(tiles: tuple[int, int]):
    for lengths in itertools.product(LENGTHS, LENGTHS):
        blocks = Blocks(*lengths, *tiles)
        walked = walk(blocks)
        assert blocks.left == len(walked), blocks
        assert blocks.keys_read == sum(keys for _, keys in walked), blocks
        assert blocks.queries_read == sum(queries for queries, _ in walked), blocks


def test_floor_sum_is_the_sum():
    for count, step, start, divisor in itertools.product((0, 1, 9), (0, 3, 64, 65), (0, 5, 200), (1, 7, 64)):
        assert floor_sum(count, step, start, divisor) == sum(
            (start + i * step) // divisor for i in range(count)
        )


def test_the_longest_sequences_are_counted_at_once():
    """2**25 Q blocks of 2**26 K/V blocks: a walk would take minutes. Block i is left 2*(i + 1) of them."""
    assert Blocks(2**31, 2**31, 64, 32).left == 2**25 * (2**25 + 1)
