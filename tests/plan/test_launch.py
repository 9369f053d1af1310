"""Grid and scalars of a launch."""

import math
from dataclasses import replace

import pytest

from fagen.errors import PlanError
from fagen.plan.kernels import kernels
from fagen.plan.launch import Scalars, Shape, launch
from fagen.plan.planner import plan, plans

TILE = {"tile": {"q": 128, "kv": 64}, "roles": {"math": {"warps": 4}}}


@pytest.fixture(scope="module")
def in_order(v2_spec):
    return plan(v2_spec("sm_90a", TILE, "h200"))


@pytest.fixture(scope="module")
def causal(v2_spec):
    return plan(v2_spec("sm_90a", TILE, "h200", mask="causal"))


def test_every_number_in_the_struct_but_strides_is_a_scalar(v2_spec, v3_spec):
    everything = v2_spec(layout="thd", softcap=30.0, dropout=True, deterministic=True)
    for spec in (v2_spec(), everything, v3_spec(), v3_spec(layout="thd"), v3_spec({"pack_gqa": True})):
        for kernel in (kernel for one in plans(spec) for kernel in kernels(one)):
            numbers = {p.name for p in kernel.params if p.ctype in ("int32_t", "uint32_t", "float")}
            assert numbers <= set(Scalars._fields)


def test_one_cta_per_query_block_and_head(in_order):
    found = launch(in_order, Shape(2, 1025, 999, 12, 4), scale=0.125)
    assert found.grid == 2 * 12 * 9
    assert found.scalars == Scalars(
        batch=2,
        heads_q=12,
        heads_kv=4,
        heads_per_kv=3,
        seqlen_q=1025,
        seqlen_k=999,
        q_tiles=9,
        heads_abreast=1,
        group_log2=0,
        scale=0.125,
        scale_log2=0.125 * math.log2(math.e),
        softcap_scale=0.0,
        dropout_threshold=0,
        dropout_rescale=1.0,
        tokens_q=2050,
        tokens_k=1998,
    )


@pytest.mark.parametrize(("p", "threshold"), [(0.0, 0), (0.1, 6554), (0.5, 32768), (0.9999999, 65535)])
def test_dropout_drops_below_a_threshold_on_16_bits_and_scales_what_is_kept(in_order, p, threshold):
    at = launch(in_order, Shape(1, 8, 8, 1, 1), 1.0, dropout_p=p).scalars
    assert at.dropout_threshold == threshold
    assert at.dropout_rescale == pytest.approx(1 / (1 - p))


def test_softcap_takes_the_place_of_the_scale_in_the_exponent(v2_spec):
    at = launch(plan(v2_spec(softcap=30.0)), Shape(1, 8, 8, 1, 1), scale=0.125).scalars
    assert (at.scale, at.scale_log2) == (0.125, pytest.approx(30 * math.log2(math.e)))
    # tanh x = 1 - 2 / (1 + 2^(2x log2 e)), of x = scale * q.k / cap
    assert at.softcap_scale == pytest.approx(2 * math.log2(math.e) * 0.125 / 30)


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
        (Shape(4, 4096, 4096, 16, 16), 11),  # 24 of their 32 tiles are not left to the end: 264 for 132 SMs
        (Shape(4, 4100, 4100, 16, 16), 11),  # 25 of 33
        (Shape(8, 1024, 1024, 16, 16), 44),  # 6 of 8
        (Shape(4, 4096, 4096, 16, 4), 12),  # whole groups of the 4 query heads of a K/V head
        (Shape(1, 4096, 4096, 8, 8), 8),  # no more pairs than there are
        (Shape(1, 2**17, 2**17, 16, 16), 4),  # at least 4, though one has tiles enough
        (Shape(1, 2**17, 2**17, 16, 2), 8),
        (Shape(1, 1, 0, 3, 3), 3),
    ],
    ids=str,
)
def test_longest_first_groups_the_pairs_that_give_every_sm_two_tiles(shape: Shape, pairs: int, causal):
    assert launch(causal, shape, 1.0).scalars.heads_abreast == pairs


@pytest.mark.parametrize(("sms", "pairs"), [(132, 11), (66, 6), (12, 4)])
def test_a_gpu_with_fewer_sms_needs_fewer_pairs_for_that(sms: int, pairs: int, causal):
    assert launch(causal, Shape(4, 4096, 4096, 16, 16), 1.0, sms).scalars.heads_abreast == pairs


def v3_plan(v3_spec, layout="bshd", **schedule):
    tile = {"tile": {"q": 128, "kv": 128}, "roles": {"math": {"warps": 8}}}
    return plan(v3_spec(tile | schedule, "h200", layout=layout))


@pytest.mark.parametrize("scheduler", ["in_order", "longest_first"])
def test_v3_has_a_cta_per_work_item(v3_spec, scheduler):
    found = launch(v3_plan(v3_spec, scheduler=scheduler), Shape(2, 1025, 999, 12, 4), 1.0)
    assert (found.grid, found.cluster, found.scalars.q_tiles) == (2 * 12 * 9, 1, 9)


@pytest.mark.parametrize("scheduler", ["persistent", "persistent_lpt"])
def test_persistent_ctas_are_as_many_as_sms(v3_spec, scheduler):
    planned = v3_plan(v3_spec, scheduler=scheduler)
    assert launch(planned, Shape(2, 1025, 999, 12, 4), 1.0).grid == planned.device.sms == 132
    assert launch(planned, Shape(2, 1025, 999, 12, 4), 1.0, sms=114).grid == 114
    assert launch(planned, Shape(1, 1025, 999, 12, 4), 1.0).grid == 12 * 9


@pytest.mark.parametrize(
    ("scheduler", "sms", "grid"),
    [("in_order", 132, 2 * 24 * 5), ("persistent", 132, 132), ("persistent", 115, 114)],
)
def test_a_work_item_of_a_cluster_has_two_q_tiles(v3_spec, scheduler, sms, grid):
    planned = v3_plan(v3_spec, scheduler=scheduler, cluster=2)
    found = launch(planned, Shape(2, 1025, 999, 12, 4), 1.0, sms)
    assert (found.grid, found.cluster, found.scalars.q_tiles) == (grid, 2, 5)


@pytest.mark.parametrize(("group", "queries"), [(1, 128), (2, 64), (8, 16), (64, 2)])
def test_with_pack_gqa_a_tile_holds_whole_queries_of_a_kv_head(v3_spec, group, queries):
    planned = v3_plan(v3_spec, scheduler="in_order", pack_gqa=True)
    found = launch(planned, Shape(2, 1000, 999, 4 * group, 4), 1.0)
    assert found.scalars.q_tiles == math.ceil(1000 / queries)
    assert (found.scalars.heads_q, found.scalars.heads_per_kv) == (4, 1)
    assert 2**found.scalars.group_log2 == group
    assert found.grid == 2 * 4 * found.scalars.q_tiles


def test_with_pack_gqa_a_cluster_has_the_queries_of_two_tiles(v3_spec):
    planned = v3_plan(v3_spec, scheduler="in_order", pack_gqa=True, cluster=2)
    found = launch(planned, Shape(2, 1000, 999, 32, 4), 1.0)
    assert (found.scalars.q_tiles, found.grid) == (math.ceil(1000 / 32), 2 * 4 * 32 * 2)


@pytest.mark.parametrize("group", [3, 48, 65, 128])
def test_pack_gqa_refuses_groups_that_do_not_divide_the_rows_of_a_warpgroup(v3_spec, group):
    said = rf"t: {group} query heads share a K/V head; .*pack_gqa: true: 1, 2, 4, 8, 16, 32, 64$"
    with pytest.raises(PlanError, match=said):
        launch(v3_plan(v3_spec, pack_gqa=True), Shape(1, 8, 8, 2 * group, 2), 1.0)
    launch(v3_plan(v3_spec), Shape(1, 8, 8, 2 * group, 2), 1.0)


@pytest.mark.parametrize("heads", [(0, 0), (0, 2)])
def test_pack_gqa_launches_nothing_without_query_heads(v3_spec, heads):
    assert launch(v3_plan(v3_spec, pack_gqa=True), Shape(1, 8, 8, *heads), 1.0).grid == 0


def test_packed_sequences_have_the_tiles_of_the_longest(v3_spec):
    planned = v3_plan(v3_spec, layout="thd", scheduler="in_order")
    found = launch(planned, Shape(3, 300, 400, 4, 2, tokens_q=512, tokens_k=640), 1.0)
    assert found.grid == 3 * 4 * 3
    at = found.scalars
    assert (at.seqlen_q, at.seqlen_k, at.q_tiles, at.tokens_q, at.tokens_k) == (300, 400, 3, 512, 640)


def test_packed_tokens_stay_within_31_bits(v3_spec):
    planned = v3_plan(v3_spec, layout="thd")
    for name in ("tokens_q", "tokens_k"):
        tokens = {"tokens_q": 8, "tokens_k": 8, name: 2**31 - 1}
        with pytest.raises(PlanError, match=f"{name} is 2,147,483,647; allowed: up to 2,147,483,519"):
            launch(planned, Shape(1, 8, 8, 1, 1, **tokens), 1.0)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(2, 8, 0, 4, 4),
        Shape(2, 0, 8, 4, 4),
        Shape(0, 8, 8, 4, 4),
        Shape(2, 8, 8, 0, 0),
        Shape(2, 0, 8, 4, 4, 16, 16),
        Shape(2, 8, 0, 4, 4, 16, 16),
        Shape(2, 8, 8, 4, 4, 16, 0),
        Shape(2, 8, 8, 4, 4, 0, 16),
    ],
    ids=repr,
)
@pytest.mark.parametrize("scheduler", ["in_order", "persistent"])
def test_v3_launches_nothing_on_an_empty_tensor(v3_spec, shape, scheduler):
    layout = "bshd" if shape.tokens_q is None else "thd"
    assert launch(v3_plan(v3_spec, layout, scheduler=scheduler), shape, 1.0).grid == 0


@pytest.mark.parametrize(
    ("schedule", "pairs"),
    [
        ({"scheduler": "persistent"}, 1),
        ({"scheduler": "longest_first"}, 12),
        ({"scheduler": "persistent_lpt"}, 12),
        ({"scheduler": "persistent_lpt", "pack_gqa": True}, 4),  # of K/V heads, with 96 of 128 tiles
    ],
    ids=str,
)
def test_v3_groups_pairs_as_v2_does(v3_spec, schedule, pairs):
    assert (
        launch(v3_plan(v3_spec, **schedule), Shape(4, 4096, 4096, 16, 4), 1.0).scalars.heads_abreast == pairs
    )
