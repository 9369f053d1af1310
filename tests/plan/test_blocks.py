"""Blocks under a mask, against walks over them."""

import itertools

import pytest

from fagen.plan.blocks import Blocks, Window, floor_sum

LENGTHS = (0, 1, 15, 16, 17, 100, 333)
TILES = ((16, 16), (16, 48), (48, 16), (64, 40), (7, 5), (400, 3))
WINDOWS = ((None, None), (None, 0), (0, 0), (20, None), (33, 7), (None, 50), (1000, 1000))


def walk(blocks: Blocks) -> list[tuple[int, int]]:
    """(queries, keys) of every block in which some query sees some key."""
    offset = blocks.seqlen_k - blocks.seqlen_q
    left, right = (1000 if side is None else side for side in blocks.window)

    def tiles(rows: int, tile: int) -> list[range]:
        return [range(start, min(start + tile, rows)) for start in range(0, rows, tile)]

    return [
        (len(queries), len(keys))
        for queries in tiles(blocks.seqlen_q, blocks.tile_q)
        for keys in tiles(blocks.seqlen_k, blocks.tile_kv)
        if keys[0] <= queries[-1] + offset + right and keys[-1] >= queries[0] + offset - left
    ]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("tiles", TILES, ids=str)
def test_counts_are_those_of_a_walk(tiles: tuple[int, int], window: Window):
    for lengths in itertools.product(LENGTHS, LENGTHS):
        blocks = Blocks(*lengths, *tiles, window)
        walked = walk(blocks)
        assert blocks.left == len(walked), blocks
        assert blocks.keys_read == sum(keys for _, keys in walked), blocks
        assert blocks.queries_read == sum(queries for queries, _ in walked), blocks
        assert sum(map(blocks.of, range(blocks.along_q))) == len(walked), blocks


def test_floor_sum_is_the_sum():
    for count, step, start, divisor in itertools.product((0, 1, 9), (0, 3, 64, 65), (0, 5, 200), (1, 7, 64)):
        assert floor_sum(count, step, start, divisor) == sum(
            (start + i * step) // divisor for i in range(count)
        )


def test_the_longest_sequences_are_counted_at_once():
    """2**25 Q blocks of 2**26 K/V blocks: a walk would take minutes. Block i is left 2*(i + 1) of them."""
    assert Blocks(2**31, 2**31, 64, 32, (None, 0)).left == 2**25 * (2**25 + 1)
