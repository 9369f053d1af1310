"""Grid and scalars of a launch."""

import math
from dataclasses import replace

import pytest

from fagen.errors import PlanError
from fagen.plan.launch import Scalars, Shape, launch
from fagen.plan.params import FORWARD
from fagen.plan.planner import plan

TILE = {"tile": {"q": 128, "kv": 64}, "roles": {"math": {"warps": 4}}}


@pytest.fixture(scope="module")
def in_order(v2_spec):
    return plan(v2_spec("sm_90a", TILE, "h200"))


@pytest.fixture(scope="module")
def causal(v2_spec):
    return plan(v2_spec("sm_90a", TILE, "h200", mask="causal"))


def test_scalars_are_the_last_fields_of_the_parameter_struct():
    assert Scalars._fields == tuple(p.name for p in FORWARD[-len(Scalars._fields) :])
    assert {p.ctype for p in FORWARD[-len(Scalars._fields) :]} == {"int32_t", "float"}


def test_one_cta_per_query_block_and_head(in_order):
    found = launch(in_order, Shape(2, 1025, 999, 12, 4), scale=0.125)
    assert found.grid == 2 * 12 * 9
    assert found.scalars == Scalars(2, 12, 3, 1025, 999, 9, 1, 0.125 * math.log2(math.e))


def test_batch_times_heads_is_not_bound_by_the_65535_of_other_grid_axes(in_order):
    assert launch(in_order, Shape(70_000, 1, 1, 2, 2), 1.0).grid == 140_000


@pytest.mark.parametrize("shape", [Shape(0, 8, 8, 4, 4), Shape(2, 0, 8, 4, 4), Shape(2, 8, 8, 0, 0)], ids=str)
def test_an_empty_call_has_an_empty_grid(shape: Shape, in_order):
    assert launch(in_order, shape, 1.0).grid == 0


def test_a_grid_beyond_31_bits_is_refused(in_order):
    with pytest.raises(PlanError, match=r"is 2,147,483,648; allowed: up to 2,147,483,647"):
        launch(in_order, Shape(2**20, 128, 128, 2**11, 1), 1.0)
    assert launch(in_order, Shape(2**20, 128, 128, 2**11 - 1, 1), 1.0).grid < 2**31


@pytest.mark.parametrize(("tile_q", "tile_kv"), [(128, 32), (64, 128)])
@pytest.mark.parametrize("name", ["seqlen_q", "seqlen_k"])
def test_what_the_kernel_adds_to_the_longest_sequence_stays_within_31_bits(v2_spec, name, tile_q, tile_kv):
    tile = {"tile": {"q": tile_q, "kv": tile_kv}, "roles": {"math": {"warps": 4}}}
    causal = plan(v2_spec("sm_90a", tile, "h200", mask="causal"))
    longest = 2**31 - 1 - max(tile_q, tile_kv)
    beyond_last_row = longest + tile_q - 1  # a row of the last tile, and the last key that it would see
    assert max(beyond_last_row + 1, longest + tile_kv - 1) < 2**31
    launch(causal, replace(Shape(1, 1, 1, 1, 1), **{name: longest}), 1.0)
    with pytest.raises(PlanError, match=f"{name} is {longest + 1:,}; allowed: up to {longest:,}"):
        launch(causal, replace(Shape(1, 1, 1, 1, 1), **{name: longest + 1}), 1.0)


@pytest.mark.parametrize(
    ("shape", "pairs"),
    [
        (Shape(4, 4096, 4096, 16, 16), 12),  # K and V of a head are 2 MiB; 25 MiB is half of L2
        (Shape(4, 4096, 4096, 16, 4), 48),  # 12 K/V heads of 4 query heads each
        (Shape(1, 4096, 4096, 8, 8), 8),  # no more pairs than there are
        (Shape(1, 2**17, 2**17, 16, 2), 8),  # one K/V head is already too much: still its whole group
        (Shape(1, 1, 0, 3, 3), 3),  # no keys, no bytes
    ],
    ids=str,
)
def test_longest_first_groups_the_pairs_whose_keys_and_values_stay_in_l2(shape: Shape, pairs: int, causal):
    assert launch(causal, shape, 1.0).scalars.heads_in_l2 == pairs
