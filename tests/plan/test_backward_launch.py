"""Grids, scalars and workspaces of v2's backward."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from fagen.errors import PlanError
from fagen.plan.arguments import arguments
from fagen.plan.backward_launch import backward_launches, launches
from fagen.plan.kernels import kernels
from fagen.plan.launch import Shape, launch
from fagen.plan.maps import Strides
from fagen.plan.params import BACKWARD
from fagen.plan.planner import plan
from fagen.plan.workspaces import head_tiles, workspaces

TILE = {"tile": {"q": 64, "kv": 128}, "warps": {"q": 2, "kv": 4, "dq": 2}}
PACKED = Shape(3, 300, 400, 4, 2, tokens_q=512, tokens_k=640)


@pytest.fixture(scope="module")
def backward(v2_spec):
    def make(**problem):
        schedule = {"backward": TILE}
        return plan(v2_spec("sm_90a", schedule, "h200", **problem), direction="backward")

    return make


def test_a_cta_for_each_q_tile_around_one_for_each_kv_tile(backward):
    prepare, main, convert = backward_launches(backward(), Shape(2, 1025, 999, 12, 4), scale=0.125)
    assert prepare.grid == convert.grid == 2 * 12 * 17
    assert main.grid == 2 * 4 * 8
    assert prepare.scalars == main.scalars == convert.scalars
    at = main.scalars
    assert (at.q_tiles, at.kv_tiles, at.head_tiles, at.heads_per_kv, at.heads_kv) == (17, 8, 17, 3, 4)
    assert at.scale == 0.125 and at.heads_abreast == 1


@pytest.mark.parametrize(("deterministic", "abreast"), [(False, 4), (True, 16)])
def test_longest_first_groups_kv_heads_whatever_the_gpu(backward, deterministic, abreast):
    shape = Shape(4, 4096, 4096, 16, 16)
    for sms in (132, 12):
        _, main, _ = backward_launches(backward(mask="causal", deterministic=deterministic), shape, 1.0, sms)
        assert main.scalars.heads_abreast == abreast
    _, main, _ = backward_launches(backward(mask="causal"), replace(shape, batch=1, heads_kv=2), 1.0)
    assert main.scalars.heads_abreast == 2, "there are no more"


@pytest.mark.parametrize(
    "shape",
    [
        Shape(0, 8, 8, 4, 4),
        Shape(2, 0, 8, 4, 4),
        Shape(2, 8, 0, 4, 4),
        Shape(2, 8, 8, 0, 0),
        Shape(2, 8, 8, 0, 4),
    ],
    ids=str,
)
def test_nothing_is_launched_where_every_gradient_is_zero(backward, shape):
    assert {launched.grid for launched in backward_launches(backward(), shape, 1.0)} == {0}


@pytest.mark.parametrize("change", [{"tokens_q": 0}, {"tokens_k": 0}, {"seqlen_q": 0}, {"seqlen_k": 0}])
def test_nothing_is_launched_on_packed_tensors_without_rows(backward, change):
    shape = replace(PACKED, **change)
    assert {launched.grid for launched in backward_launches(backward(layout="thd"), shape, 1.0)} == {0}


def test_packed_sequences_have_the_tiles_of_the_longest_in_grids_and_their_own_in_workspaces(backward):
    planned = backward(layout="thd")
    prepare, main, _ = backward_launches(planned, PACKED, 1.0)
    assert (prepare.grid, main.grid) == (3 * 4 * 5, 3 * 2 * 4)
    assert main.scalars.head_tiles == head_tiles(planned, PACKED) == 512 // 64 + 3


@pytest.mark.parametrize("lengths", [(1, 63, 64), (0, 0, 200), (65, 1, 1, 1), (64,) * 4, (7,)], ids=str)
def test_packed_sequences_never_share_a_tile_of_the_workspaces(backward, lengths):
    starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    shape = Shape(len(lengths), max(lengths), 8, 1, 1, tokens_q=starts[-1], tokens_k=8)
    # sched/any_length.cuh
    first = [start // 64 + b for b, start in enumerate(starts[:-1])]
    ranges = [(at, at + -(-length // 64)) for at, length in zip(first, lengths, strict=True)]
    assert all(before[1] <= after[0] for before, after in pairwise(ranges))
    assert ranges[-1][1] <= head_tiles(backward(layout="thd"), shape)


def test_workspaces_have_room_for_whole_tiles_of_every_head(backward):
    tiles = 2 * 12 * 17
    assert workspaces(backward(head_dim=40), Shape(2, 1025, 999, 12, 4)) == {
        "dq_sum": 4 * tiles * 64 * 64,
        "row_stats": 4 * tiles * 64 * 2,
        "turns": 4 * tiles,
    }
    assert workspaces(backward(layout="thd"), PACKED)["turns"] == 4 * 4 * 11


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (Shape(2**20, 128, 128, 2**10, 2**10), "batch * heads_q * ceil(seqlen_q / backward.tile.q)"),
        (Shape(2**20, 1, 256, 2**10, 2**10), "batch * heads_kv * ceil(seqlen_k / backward.tile.kv)"),
        (Shape(1, 1, 2**31 - 128, 1, 1), "seqlen_k"),
    ],
    ids=str,
)
def test_sizes_beyond_31_bits_are_refused(backward, shape, said):
    with pytest.raises(PlanError, match="allowed: up to") as caught:
        backward_launches(backward(), shape, 1.0)
    assert said in str(caught.value)


def test_launches_are_those_of_either_pass(backward, v2_spec):
    shape = Shape(1, 100, 100, 2, 2)
    forward = plan(v2_spec())
    assert launches(forward, shape, 0.5) == (launch(forward, shape, 0.5),)
    assert launches(backward(), shape, 0.5) == backward_launches(backward(), shape, 0.5)


def test_arguments_know_the_bytes_behind_every_address(backward):
    planned, shape = backward(head_dim=64, deterministic=True, dropout=True), Shape(2, 100, 200, 4, 2)
    strides = {name: Strides(10**6, 1024, 128) for name in ("q", "dq", "out", "dout")}
    strides |= {name: Strides(10**6, 512, 128) for name in ("k", "v", "dk", "dv")}
    launched = backward_launches(planned, shape, 1.0)
    made = [
        arguments(kernel, shape, own, strides) for kernel, own in zip(kernels(planned), launched, strict=True)
    ]
    for one in made:
        assert one.addresses == BACKWARD
        assert set(BACKWARD) <= set(one.extents)
        assert all(param.name in one.numbers for param in one.params if not param.is_pointer)
        assert one.extents["dq"] == 2 * (10**6 + 99 * 1024 + 3 * 128 + 64)
        assert one.extents["dv"] == 2 * (10**6 + 199 * 512 + 128 + 64)
        assert one.extents["dlse"] == 4 * 2 * 4 * 100
        assert {name: one.extents[name] for name in ("dq_sum", "row_stats", "turns")} == workspaces(
            planned, shape
        )
