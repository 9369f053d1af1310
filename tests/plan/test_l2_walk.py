"""What a walk in longest-first order brings from HBM."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fagen.paths import SPECS
from fagen.plan import io
from fagen.plan.blocks import Blocks
from fagen.plan.formulas import formula
from fagen.plan.l2_walk import MOST_STEPS, Walk, reads
from fagen.plan.launch import Shape
from fagen.plan.order import longest_first
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

CAUSAL = Walk(
    blocks=Blocks(1024, 1024, 64, 64, (None, 0)),
    first_is_longest=False,
    pairs=12,
    abreast=4,
    sharing=1,
    repeats=1,
    ctas=8,
    block_bytes=2**10,
    own_bytes=2**11,
)
EVERYTHING = 2**30

# MiB over the memory bus of one pass of h200_fa2 on an H200, 9 x 16 heads, cold L2 (performance.md).
MEASURED = {
    ("forward", "none", 2048): 292.4,
    ("forward", "causal", 2048): 380.2,
    ("forward", "none", 8192): 1222.0,
    ("forward", "causal", 8192): 2001.2,
    ("backward", "none", 2048): 1231.9,
    ("backward", "causal", 2048): 1483.6,
    ("backward", "none", 8192): 5233.9,
    ("backward", "causal", 8192): 9282.4,
}


def test_an_l2_that_holds_everything_reads_each_block_once():
    assert reads(CAUSAL, EVERYTHING) == 1.0
    assert reads(replace(CAUSAL, first_is_longest=True), EVERYTHING) == 1.0
    assert reads(replace(CAUSAL, repeats=3), EVERYTHING) == 1.0


def test_one_cta_at_a_time_and_no_l2_reads_all_that_it_walks():
    alone = replace(CAUSAL, ctas=1, abreast=1)
    assert reads(alone, 0) == alone.blocks.left / alone.blocks.along_kv


def test_pairs_that_share_their_blocks_read_them_together():
    shared = replace(CAUSAL, sharing=4)
    assert reads(shared, EVERYTHING) == 1.0
    assert reads(shared, 2**15) * 3 < reads(CAUSAL, 2**15) * 12


@pytest.mark.parametrize("longest", [True, False])
def test_less_l2_never_reads_less(longest):
    sizes = [2**n for n in range(10, 22)]
    found = [reads(replace(CAUSAL, first_is_longest=longest), size) for size in sizes]
    assert found == sorted(found, reverse=True) and found[0] > 1.5 > found[-1] == 1.0


def test_long_walks_are_cut_to_fewer_pairs():
    assert CAUSAL.shortened() == CAUSAL
    many = replace(CAUSAL, pairs=10**6, sharing=4).shortened()
    assert many and many.pairs % 4 == 0 and many.pairs * CAUSAL.blocks.left <= MOST_STEPS
    assert replace(CAUSAL, blocks=Blocks(2**20, 2**20, 64, 64, (None, 0))).shortened() is None
    assert replace(CAUSAL, blocks=Blocks(0, 64, 64, 64, (None, 0))).shortened() is None


def test_every_tile_of_every_pair_has_its_turn():
    items = list(longest_first(pairs=7, tiles=9, abreast=3))
    assert sorted(items) == [(pair, tile) for pair in range(7) for tile in range(9)]
    assert items[0] == (0, 8) and items[-1] == (6, 0)


@pytest.mark.parametrize(("direction", "mask", "seqlen"), MEASURED)
def test_the_model_is_within_a_tenth_of_what_was_measured(direction, mask, seqlen):
    spec = load_spec(SPECS / "h200_fa2.yaml", {"problem.mask": mask, "problem.layout": "bhsd"})
    at = io.setting(plan(spec, None, direction), Shape(9, seqlen, seqlen, 16, 16))
    modelled = io.evaluate(formula("v2", direction, "HBM"), at) / 2**20
    assert modelled == pytest.approx(MEASURED[direction, mask, seqlen], rel=0.1)
