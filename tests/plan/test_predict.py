"""Predicted time of a shape: FLOP by counting, and where the model must not flatter."""

import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from fagen.paths import SPECS
from fagen.plan import v2_engines, work_items
from fagen.plan.efficiency import PLANNER, V2_FORWARD, V3_FORWARD
from fagen.plan.engines import HBM, MUFU
from fagen.plan.launch import Shape, launch
from fagen.plan.planner import plan
from fagen.plan.predict import flops, predict
from fagen.plan.timeline import item_cycles, start_cycles
from fagen.plan.timeline_kernel import kernel
from fagen.plan.v3_time import typical_timeline
from fagen.spec.load import load_spec
from fagen.spec.model import Spec


def planned(mask: Any = "none", family="v2", **schedule):
    problem = {"dtype": "bf16", "head_dim": 64, "head_dim_v": 128, "mask": mask}
    spec = {"name": "s", "family": family, "arch": "sm_90a", "problem": problem, "schedule": schedule}
    return plan(Spec.model_validate(spec))


def planned_v3(mask="none", **schedule):
    return planned(mask, "v3", tile={"q": 128, "kv": 128}, **schedule)


def cycles(plan, shape):
    """Cycles that an SM is predicted to work."""
    return (predict(plan, shape).seconds - V3_FORWARD.launch) * plan.device.clock_hz


@pytest.mark.parametrize("lengths", [(5, 5), (3, 8), (8, 3), (1, 9), (9, 1), (0, 4), (4, 0)])
def test_flop_counts_visible_pairs(lengths):
    queries, keys = lengths
    visible = sum(j <= i + keys - queries for i in range(queries) for j in range(keys))
    shape = Shape(2, queries, keys, 6, 3)
    assert flops(planned("causal"), shape) == 2 * 12 * visible * (64 + 128)
    assert flops(planned(), shape) == 2 * 12 * queries * keys * (64 + 128)


@pytest.mark.parametrize("window", [(0, 0), (2, 1), (None, 2), (3, None), (0, 100)], ids=str)
@pytest.mark.parametrize("lengths", [(5, 5), (3, 8), (8, 3), (1, 9), (9, 1)])
def test_flop_of_a_window_counts_visible_pairs(lengths, window):
    queries, keys = lengths
    left, right = (100 if side is None else side for side in window)
    visible = sum(-left <= j - (i + keys - queries) <= right for i in range(queries) for j in range(keys))
    found = flops(planned({"window": window}), Shape(2, queries, keys, 6, 3))
    assert found == 2 * 12 * visible * (64 + 128)


def test_a_full_device_reaches_the_engines_speed_and_never_more():
    p = planned()
    speed = predict(p, Shape(8, 16384, 16384, 16, 16), {"v2 forward": PLANNER}).tflops
    assert 0.97 * p.engines.tflops < speed <= p.engines.tflops * 1.0001


def test_few_ctas_leave_most_of_the_device_idle_and_have_their_sm_to_themselves():
    p = planned()
    one = predict(p, Shape(1, p.tiling.q, 8192, 1, 1))
    slots = p.device.sms * p.tiling.ctas_per_sm
    assert p.engines.tflops / slots < one.tflops < p.engines.tflops / p.device.sms


def test_one_query_against_many_keys_is_bound_by_memory():
    p = planned()
    decode = predict(p, Shape(64, 1, 8192, 16, 1))
    moved = 64 * 8192 * (64 + 128) * 2
    assert decode.seconds >= moved / p.device.hbm_bytes_per_s


def test_causal_takes_about_half_as_long():
    shape = Shape(2, 16384, 16384, 16, 16)
    none, causal = predict(planned(), shape), predict(planned("causal"), shape)
    assert causal.seconds / none.seconds == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("lengths", [(0, 500), (500, 500), (5000, 1), (5000, 5000), (777, 40_000)], ids=str)
def test_time_is_that_of_the_tiles_that_a_walk_over_the_ctas_counts(mask, lengths):
    p = planned(mask)
    (queries, keys), heads = lengths, 2 * 16
    found = predict(p, Shape(2, queries, keys, 16, 16))
    if not queries:
        assert found.seconds == 0
        return
    seen = [
        max(min(row + p.tiling.q, queries) + keys - queries, 0) if mask == "causal" else keys
        for row in range(0, queries, p.tiling.q)
    ]
    tiles = [-(-each // p.tiling.kv) for each in seen]
    resident = min(p.tiling.ctas_per_sm, -(-heads * len(tiles) // p.device.sms))
    on_sm = replace(p.tiling, ctas_per_sm=resident)
    per_tile = v2_engines.tile_cycles(p.engines.loads, on_sm, V2_FORWARD) * resident
    costs = [V2_FORWARD.cta + each * per_tile for each in tiles]
    slots = p.device.sms * resident
    cycles = (found.seconds - V2_FORWARD.launch) * p.device.clock_hz
    shared = heads * sum(costs) / slots
    if found.bound == HBM:
        assert cycles > shared
    elif mask == "none":
        assert cycles == pytest.approx(-(-heads * len(tiles) // slots) * costs[0])
    else:
        assert max(max(costs), shared) <= cycles * 1.000001 <= shared + max(costs)


def test_an_sm_takes_more_ctas_than_were_asked_for_where_it_has_room():
    def seconds(ctas: int) -> float:
        schedule = {"tile": {"q": 64, "kv": 32}, "roles": {"math": {"warps": 4}}, "stages": {"kv": 2}}
        p = planned(**schedule, q_operand="shared", ctas_per_sm=ctas)
        return predict(p, Shape(8, 4096, 4096, 16, 16)).seconds

    assert seconds(1) == seconds(2)


def test_a_window_takes_as_long_as_the_tiles_that_it_leaves():
    shape = Shape(2, 16384, 16384, 16, 16)
    none, window = predict(planned(), shape), predict(planned({"window": (1024, 0)}), shape)
    assert window.seconds / none.seconds == pytest.approx(1024 / 16384, rel=0.2)


def test_v3_on_one_sm_is_the_work_items_one_after_another():
    p = planned_v3()
    one = kernel(p, V3_FORWARD)
    for seqlen in (512, 1024, 4096):
        tiles = -(-seqlen // 128)
        expected = start_cycles(one, tiles) + item_cycles(one)(tiles)
        assert cycles(p, Shape(1, 128, seqlen, 1, 1)) == pytest.approx(expected)
        assert cycles(p, Shape(1, 128, seqlen, 132, 1)) == pytest.approx(expected)
        later = item_cycles(one)(tiles)
        assert cycles(p, Shape(1, 128, seqlen, 133, 1)) == pytest.approx(expected + later)


def test_v3_in_rounds_hands_out_every_other_round_of_work_items_backwards():
    """4 heads of 66 Q tiles, which see 1 to 66 K/V tiles, on 132 SMs: each gets n of them, and 67 - n."""
    p = planned_v3("causal", scheduler="persistent")
    one = kernel(p, V3_FORWARD)
    longest = max(item_cycles(one)(tiles) + item_cycles(one)(67 - tiles) for tiles in range(1, 34))
    found = cycles(p, Shape(1, 66 * 128, 66 * 128, 4, 4))
    assert found == pytest.approx(longest + start_cycles(one, 34))


@pytest.mark.parametrize("scheduler", ["persistent_lpt", "longest_first"])
def test_v3_hands_out_the_shortest_quarter_last_and_the_others_group_by_group(scheduler):
    p = planned_v3("causal", scheduler=scheduler)
    scalars = launch(p, Shape(1, 9 * 128, 9 * 128, 3, 3), scale=1.0).scalars._replace(heads_abreast=2)
    group, alone, last = [8, 7, 6, 5, 4, 3, 2], [8, 7, 6, 5, 4, 3, 2], [1, 1, 1, 0, 0, 0]
    assert (
        work_items.order(3, scalars.q_tiles, scalars.heads_abreast)
        == [tile for tile in group for _ in range(2)] + alone + last
    )


def test_v3_by_a_counter_ends_within_two_short_items_of_the_mean():
    """Two, as a CTA has its next one dealt when it starts on one."""
    p = planned_v3("causal", scheduler="persistent_lpt")
    shape, one = Shape(1, 4096, 4096, 50, 50), kernel(p, V3_FORWARD)
    mean = 50 * sum(item_cycles(one)(tiles) for tiles in range(1, 33)) / 132
    assert mean <= cycles(p, shape) - start_cycles(one, 16) < mean + 2 * item_cycles(one)(3)


def test_v3_without_persistence_gives_the_next_work_item_to_the_sm_that_is_free():
    in_order, longest = (planned_v3("causal", scheduler=s) for s in ("in_order", "longest_first"))
    shape = Shape(1, 4096, 4096, 10, 10)
    one = kernel(in_order, V3_FORWARD)
    total = 10 * sum(item_cycles(one)(tiles) for tiles in range(1, 33)) / 132
    assert total <= cycles(longest, shape) < cycles(in_order, shape)
    assert cycles(longest, shape) < 1.2 * total


@pytest.mark.parametrize("mask", ["none", "causal", {"window": (512, 0)}], ids=str)
def test_v3_longer_sequences_take_longer(mask):
    p = planned_v3(mask)
    seconds = [predict(p, Shape(2, s, s, 8, 8)).seconds for s in (512, 1024, 2048, 4096, 8192, 16384)]
    assert all(a < b for a, b in pairwise(seconds))


def test_v3_causal_takes_about_half_as_long():
    shape = Shape(4, 8192, 8192, 16, 16)
    none, causal = (
        predict(planned_v3(mask, scheduler="longest_first"), shape) for mask in ("none", "causal")
    )
    assert causal.seconds / none.seconds == pytest.approx(0.5, rel=0.1)
    assert none.bound == typical_timeline(planned_v3(), shape).bound == MUFU  # slow beside so many products


def test_v3_query_heads_that_share_keys_take_no_less_unless_they_are_packed():
    plain, packed = planned_v3(), planned_v3(pack_gqa=True)
    many, grouped = Shape(1, 4096, 4096, 32, 32), Shape(1, 4096, 4096, 32, 8)
    assert predict(plain, grouped).seconds == predict(plain, many).seconds
    decode = Shape(32, 4, 4096, 32, 8)  # 4 heads of 4 queries fill a Q tile that without packing holds 4 rows
    assert cycles(packed, decode) < 0.5 * cycles(plain, decode)


def test_v3_of_one_query_is_bound_by_memory_and_an_empty_call_takes_no_time():
    p = planned_v3(pack_gqa=True)
    decode = predict(p, Shape(512, 1, 8192, 16, 1))
    assert decode.bound == HBM
    assert decode.seconds >= 512 * 8192 * (64 + 128) * 2 / p.device.hbm_bytes_per_s
    assert predict(p, Shape(1, 0, 128, 1, 1)).seconds == 0


@pytest.mark.parametrize("mask", ["none", "causal", {"window": (512, 0)}, {"window": (0, 512)}], ids=str)
@pytest.mark.parametrize("lengths", [(4096, 1), (1, 4096), (65536, 512), (512, 65536)], ids=str)
@pytest.mark.parametrize("family", ["v2", "v3"])
def test_queries_and_keys_of_any_number_have_a_time(family, lengths, mask):
    p = planned(mask, family, scheduler="longest_first")
    queries, keys = lengths
    assert 0 < predict(p, Shape(64, queries, keys, 16, 16)).seconds < 1


@pytest.mark.parametrize("scheduler", ["persistent_lpt", "longest_first"])
def test_v3_predicts_at_once(scheduler):
    p = planned_v3("causal", scheduler=scheduler)
    predict(p, Shape(1, 128, 128, 1, 1))
    for shape in (Shape(32, 512, 512, 32, 8), Shape(1, 16384, 16384, 64, 8), Shape(64, 2**20, 2**20, 64, 64)):
        start = time.perf_counter()
        assert predict(p, shape).tflops > 100
        assert time.perf_counter() - start < 0.5


# TFLOP/s of the shipped v3 kernels on an H200: bf16, 16k tokens, hidden 2048; of several runs the middle one.
MEASURED = [
    ("h200_fa3_d64", "none", 1024, 499),
    ("h200_fa3_d64", "causal", 1024, 327),
    ("h200_fa3_d64", "none", 8192, 631),
    ("h200_fa3_d64", "causal", 16384, 616),
    ("h200_fa3_d64_short", "causal", 1024, 387),
    ("h200_fa3_d64_short", "causal", 2048, 458),
    ("h200_fa3_d96", "causal", 1024, 439),
    ("h200_fa3_d96", "none", 2048, 633),
    ("h200_fa3_d96", "causal", 8192, 650),
    ("h200_fa3", "causal", 1024, 500),
    ("h200_fa3", "none", 2048, 731),
    ("h200_fa3", "causal", 8192, 741),
    ("h200_fa3", "none", 16384, 801),
    ("h200_fa3_d256", "causal", 1024, 515),
    ("h200_fa3_d256", "none", 2048, 766),
    ("h200_fa3_d256", "causal", 8192, 773),
    ("h200_fa3_d256", "none", 16384, 843),
]


@pytest.mark.parametrize(("name", "mask", "seqlen", "tflops"), MEASURED, ids=str)
def test_v3_predicts_what_was_measured(name, mask, seqlen, tflops):
    p = plan(load_spec(SPECS / f"{name}.yaml", {"problem.mask": mask}))
    heads = 2048 // p.spec.problem.head_dim
    shape = Shape(16384 // seqlen, seqlen, seqlen, heads, heads)
    assert predict(p, shape).tflops == pytest.approx(tflops, rel=0.1)


def test_v3_predicts_what_was_measured_where_four_query_heads_share_keys():
    p = plan(load_spec(SPECS / "h200_fa3.yaml"))
    assert predict(p, Shape(2, 8192, 8192, 32, 8)).tflops == pytest.approx(777, rel=0.1)


# Microseconds on an H200 of 32 sequences of 1024 tokens, 16 heads, no mask: rows of 144 and 208 bytes, which
# cut the 32 bytes that L2 hands out at once, and rows that do not; before Q K' left out padding.
SECTORS = [
    (72, 128, 128, 2, 451),
    (72, 192, 64, 3, 380),
    (80, 128, 128, 2, 342),
    (80, 192, 64, 3, 349),
    (104, 128, 128, 2, 446),
    (104, 192, 64, 3, 430),
]


@pytest.mark.parametrize(("head_dim", "q", "kv", "stages", "microseconds"), SECTORS)
def test_v3_predicts_what_was_measured_of_rows_that_cut_sectors(head_dim, q, kv, stages, microseconds):
    schedule = {"tile": {"q": q, "kv": kv}, "stages": {"kv": stages}}
    problem = {"head_dim": head_dim, "mask": "none"}
    p = plan(load_spec(SPECS / "h200_fa3.yaml", {"problem": problem, "schedule": schedule}))
    assert predict(p, Shape(32, 1024, 1024, 16, 16)).seconds == pytest.approx(microseconds * 1e-6, rel=0.1)
