"""The timeline: what no run may break, and cycles that follow from the rates alone."""

from dataclasses import replace
from itertools import pairwise

import pytest

from fagen.errors import PlanError
from fagen.plan import timeline_text
from fagen.plan.efficiency import V3_FORWARD
from fagen.plan.engines import FMA, HBM, L2, MUFU, TENSOR
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.timeline import KNOTS, LINEAR, item_cycles, start_cycles, timeline
from fagen.plan.timeline_kernel import Kernel, kernel
from fagen.plan.timeline_roles import ENGINES
from fagen.spec.model import Spec

# Nothing is lost, and nothing waits.
FREE = replace(
    V3_FORWARD,
    issue=0,
    contention=0,
    drain=0,
    handoff=0,
    split_row=0,
    load_latency=0,
    item=0,
    store=0,
    cta=0,
    drift=float("inf"),
)
KERNEL = Kernel(
    warpgroups=2,
    kv=128,
    dim=128,
    dim_v=128,
    element_bytes=2,
    split_k=False,
    split_v=False,
    stages=2,
    q_stages=1,
    pingpong=True,
    overlap=True,
    rescale=True,
    growth=False,
    polynomial=0.0,
    softcap=False,
    cluster=1,
    persistent=True,
    masked_sides=0,
    tensor_flops=4096,
    mufu=16,
    lanes=128,
    smem_bytes=1e12,
    l2_bytes=60,
    hbm_bytes=20,
    clock_hz=1.5e9,
    costs=V3_FORWARD,
)
# Nothing takes time but the tensor core.
ONLY_TENSOR = replace(KERNEL, mufu=1e12, lanes=1e12, l2_bytes=1e12, hbm_bytes=1e12, costs=FREE)
# Exponentials take as long as they are many.
UNDISTURBED = replace(KERNEL, costs=replace(V3_FORWARD, contention=0))
VARIANTS = [
    replace(KERNEL, **change)
    for change in (
        {},
        {"pingpong": False},
        {"overlap": False},
        {"overlap": False, "pingpong": False},
        {"q_stages": 2, "stages": 3},
        {"warpgroups": 1, "pingpong": False},
        {"warpgroups": 3, "dim": 64, "dim_v": 64},
        {"dim": 192, "kv": 112},
        {"growth": True, "masked_sides": 1, "kv": 64},
        {"persistent": False, "masked_sides": 2, "polynomial": 0.5, "rescale": False},
    )
]


def tile_cycles(one: Kernel) -> float:
    return item_cycles(one)(LINEAR + 1) - item_cycles(one)(LINEAR)


def planned(family="v3", **schedule):
    return plan(
        Spec.model_validate(
            {
                "name": "t",
                "family": family,
                "arch": "sm_90a",
                "problem": {"dtype": "bf16", "head_dim": 128, "mask": "causal"},
                "schedule": schedule,
            }
        )
    )


@pytest.mark.parametrize("one", VARIANTS)
def test_an_engine_does_one_job_at_a_time_and_a_math_role_one_thing(one):
    run = timeline(one, 3)
    spans = [[e for e in run.events if e.engine == engine] for engine in ENGINES]
    spans += [[e for e in run.events if e.role == role and not e.engine] for role in run.roles]
    for events in spans:
        ordered = sorted(events, key=lambda event: event.start)
        assert all(event.start <= event.end for event in events)
        assert all(a.end <= b.start + 1e-6 for a, b in pairwise(ordered))


@pytest.mark.parametrize("one", VARIANTS)
@pytest.mark.parametrize("tiles", [1, 2, 5])
def test_every_tile_is_loaded_and_multiplied_before_it_is_used(one, tiles):
    run = timeline(one, tiles)
    every = range(tiles * len(run.ends))
    loaded = {(e.what, e.tile): e.end for e in run.events if e.engine == L2}
    assert {tile for what, tile in loaded if what == "K"} == set(every)
    for role in run.roles[1:]:
        multiplied = {(e.what, e.tile): e for e in run.events if e.engine == TENSOR and e.role == role}
        softmax = {e.tile: e for e in run.events if e.what == "softmax" and e.role == role and not e.engine}
        assert len(multiplied) == 2 * len(every)
        for tile in every:
            scores, values = multiplied["S", tile], multiplied["PV", tile]
            assert loaded["K", tile] <= scores.start
            assert loaded["V", tile] <= values.start
            assert scores.end <= softmax[tile].start
            assert softmax[tile].end <= values.start


@pytest.mark.parametrize("one", VARIANTS)
def test_a_ring_holds_no_more_tiles_than_it_has_stages(one):
    run = timeline(one, 4)
    for what, product in (("K", "S"), ("V", "PV")):
        loads = [e for e in run.events if e.engine == L2 and e.what == what]
        for load in loads:
            past = load.tile - one.stages
            assert all(
                e.end <= load.start
                for e in run.events
                if e.engine == TENSOR and e.what == product and e.tile == past
            )


def test_two_warpgroups_of_d_128_take_the_tensor_core_2048_cycles_a_tile():
    assert tile_cycles(ONLY_TENSOR) == pytest.approx(4 * 128 * 128 * 128 / 4096)
    assert timeline(ONLY_TENSOR, 4).utilisation(TENSOR) == pytest.approx(1)


@pytest.mark.parametrize("one", VARIANTS)
def test_without_latencies_and_other_work_the_time_is_the_tensor_cores(one):
    free = replace(one, mufu=1e12, lanes=1e12, l2_bytes=1e12, hbm_bytes=1e12, costs=FREE)
    per_tile = 2 * 64 * one.warpgroups * one.kv * (one.dim + one.dim_v) / 4096
    assert tile_cycles(free) == pytest.approx(per_tile)


@pytest.mark.parametrize("one", VARIANTS)
def test_no_engine_is_asked_for_more_than_there_is_time_for(one):
    run = timeline(one, 4)
    assert all(0 < run.utilisation(engine) <= 1 for engine in ENGINES)
    assert run.bound == max(ENGINES, key=run.utilisation)


@pytest.mark.parametrize(
    ("change", "bound", "cycles"),
    [
        ({"mufu": 1.0}, MUFU, 2 * 64 * 128 / 1.0),
        ({"lanes": 4.0}, FMA, 2 * 64 * 128 * (5.25 + 2 + 1) / 4.0),  # softmax, maximum, rescale
        ({"lanes": 4.0, "growth": True}, FMA, 2 * 64 * 128 * 5.25 / 4.0),
        ({"l2_bytes": 8.0}, L2, 2 * 128 * 128 * 2 / 8.0),
        ({"l2_bytes": 8.0, "cluster": 2}, L2, 128 * 128 * 2 / 8.0),
        ({"split_v": True, "costs": replace(FREE, split_row=40)}, L2, 128 * 40),
    ],
    ids=str,
)
def test_the_slowest_engine_is_the_bound(change, bound, cycles):
    slow = replace(ONLY_TENSOR, **change)
    assert timeline(slow, 4).bound == bound
    assert tile_cycles(slow) == pytest.approx(cycles, rel=0.02)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("kv", [64, 128, 176])
@pytest.mark.parametrize("sizes", [{}, {"warpgroups": 3, "dim": 64, "dim_v": 64}], ids=["d=128", "d=64"])
def test_turns_cost_no_more_than_their_barriers_where_the_ring_has_a_stage_to_spare(overlap, kv, sizes):
    """Without overlap the two products are awaited before the turn is passed on."""
    on = replace(KERNEL, overlap=overlap, kv=kv, stages=3, **sizes)
    waits = 1 if overlap else 3
    barriers = on.warpgroups * waits * on.costs.handoff
    assert tile_cycles(on) <= tile_cycles(replace(on, pingpong=False)) + barriers


@pytest.mark.parametrize("kv", [64, 128, 176])
def test_in_a_ring_of_two_stages_turns_hold_the_k_after_next_up_by_a_turn_at_most(kv):
    """The last in turn frees K a turn later, which the load of the K after next may wait for."""
    on = replace(KERNEL, kv=kv)
    turn = 2 * (2 * 64 * kv * 128 / on.tensor_flops)
    lost = tile_cycles(on) - tile_cycles(replace(on, pingpong=False))
    assert lost <= turn / 2


def test_growth_saves_the_maximum_and_the_rescale_but_where_a_row_begins_or_is_cut():
    saves, finds = (replace(KERNEL, growth=growth, masked_sides=1, kv=64) for growth in (True, False))
    assert [saves.masked(warpgroup) for warpgroup in range(2)] == [2, 1]
    for warpgroup, cut in ((0, 2), (1, 1)):
        assert [saves.finds_maxima(warpgroup, tile) for tile in range(4)] == [tile < cut for tile in range(4)]
    assert replace(saves, masked_sides=0).finds_maxima(0, 0)
    assert all(finds.finds_maxima(0, tile) for tile in range(4))
    assert tile_cycles(saves) < tile_cycles(finds)


def test_k_is_held_until_the_softmax_is_done_and_q_until_the_last_one_of_its_item():
    run = timeline(replace(KERNEL, persistent=True), 3)
    done = {
        tile: max(e.end for e in run.events if e.what == "softmax" and e.tile == tile and e.engine)
        for tile in range(3 * len(run.ends))
    }
    for load in (e for e in run.events if e.engine == L2):
        held_by = {"K": load.tile - KERNEL.stages, "Q": load.tile - 1}.get(load.what, -1)
        if held_by >= 0:
            assert done[held_by] <= load.start


def test_the_next_items_k_is_fetched_before_the_last_v_and_its_q():
    order = [(e.what, e.tile) for e in timeline(KERNEL, 3).events if e.engine in (L2, HBM)]
    assert order[:10] == [
        ("K", 0), ("Q", 0), ("K", 1), ("V", 0), ("K", 2), ("V", 1), ("K", 3), ("V", 2), ("Q", 3), ("K", 4),
    ]  # fmt: skip


def test_going_from_item_to_item_costs_short_items_most():
    free = replace(KERNEL, costs=replace(KERNEL.costs, item=0, store=0))
    lost = [item_cycles(KERNEL)(tiles) / item_cycles(free)(tiles) for tiles in (2, 8, 32)]
    assert lost[0] > lost[1] > lost[2] > 1


def test_overlap_hides_the_softmax_of_a_lone_warpgroup():
    alone = replace(ONLY_TENSOR, warpgroups=1, pingpong=False, mufu=16)
    products, exponentials = 1024, 64 * 128 / 16
    assert tile_cycles(alone) == pytest.approx(products, rel=0.01)
    assert tile_cycles(replace(alone, overlap=False)) == pytest.approx(products + exponentials, rel=0.01)


def test_a_polynomial_moves_exponentials_from_the_mufu_to_the_fma_pipe():
    hardware, half = timeline(UNDISTURBED, 4), timeline(replace(UNDISTURBED, polynomial=0.5), 4)
    busy = [[run.utilisation(e) * run.item_cycles for e in (MUFU, FMA)] for run in (hardware, half)]
    assert busy[1][0] == pytest.approx(busy[0][0] / 2)
    assert busy[1][1] > busy[0][1]


def test_a_soft_cap_is_two_more_special_functions():
    plain, capped = timeline(UNDISTURBED, 4), timeline(replace(UNDISTURBED, softcap=True), 4)
    busy = [[run.utilisation(e) * run.item_cycles for e in (MUFU, FMA)] for run in (plain, capped)]
    assert busy[1][0] == pytest.approx(3 * busy[0][0], rel=0.01)
    assert busy[1][1] > busy[0][1]


def test_a_second_q_buffer_hides_the_load_of_q_as_far_as_the_way_to_the_next_item_does_not():
    quick = replace(KERNEL, costs=replace(KERNEL.costs, item=0))
    assert item_cycles(replace(quick, q_stages=2))(4) < item_cycles(quick)(4)
    assert item_cycles(replace(KERNEL, q_stages=2))(4) <= item_cycles(KERNEL)(4)


def test_a_persistent_cta_hides_the_start_of_a_work_item():
    assert item_cycles(KERNEL)(4) < item_cycles(replace(KERNEL, persistent=False))(4)
    assert start_cycles(replace(KERNEL, persistent=False), 4) == pytest.approx(0, abs=1e-6)
    assert start_cycles(KERNEL, 4) > 0


@pytest.mark.parametrize("one", VARIANTS)
def test_the_steady_state_is_the_same_however_many_items_are_run(one):
    """The last item has no next one beside it, and is shorter."""
    few, many = timeline(one, 4, items=4), timeline(one, 4, items=12)
    assert few.item_cycles == pytest.approx(many.item_cycles, rel=0.005)


def test_warps_that_drift_lose_most_where_engine_and_warpgroup_are_equally_busy():
    def lost(**change: int) -> float:
        one = replace(ONLY_TENSOR, pingpong=False, **change)
        drifting = replace(one, costs=replace(one.costs, drift=V3_FORWARD.drift))
        return item_cycles(drifting)(8) / item_cycles(one)(8) - 1

    assert lost(warpgroups=1, mufu=16) == 0  # it never meets another one
    assert lost(warpgroups=2, mufu=16) > lost(warpgroups=3, mufu=16) > 0


def test_more_tiles_take_longer_and_long_items_go_on_as_short_ones_do():
    cycles = [item_cycles(KERNEL)(tiles) for tiles in range(1, 3 * LINEAR)]
    assert all(a < b for a, b in pairwise(cycles))


@pytest.mark.parametrize("pingpong", [True, False])
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("tile", [(192, 48), (192, 64), (192, 80), (128, 48), (128, 64), (128, 80)], ids=str)
def test_long_items_take_what_a_run_of_them_does(tile, stages, pingpong):
    """Further tiles are counted from where a run has found its step: at first it is ahead or behind."""
    schedule = {"tile": dict(zip(("q", "kv"), tile, strict=True)), "stages": {"q": 1, "kv": stages}}
    one = kernel(planned(**schedule, roles={"math": {"pingpong": pingpong}}), V3_FORWARD)
    in_step = replace(one, costs=replace(one.costs, drift=float("inf")))
    assert item_cycles(in_step)(96) == pytest.approx(timeline(one, 96, recorded=False).item_cycles, rel=0.01)


@pytest.mark.parametrize("kv", [48, 64, 80, 112, 128, 176])
@pytest.mark.parametrize("warpgroups", [1, 2, 3])
def test_a_causal_mask_cuts_the_tiles_that_a_walk_over_the_q_tiles_finds(warpgroups, kv):
    one = replace(KERNEL, warpgroups=warpgroups, kv=kv, growth=True, masked_sides=1)
    q, starts = warpgroups * 64, range(0, warpgroups * 64 * kv, warpgroups * 64)
    for warpgroup in range(warpgroups):
        cut = []
        for start in starts:
            seen = -(-(start + q) // kv)  # K/V tiles of the item; some rows do not see all of the last ones
            cut.append(sum((tile + 1) * kv > start + warpgroup * 64 + 1 for tile in range(seen)))
        assert one.masked(warpgroup) == pytest.approx(sum(cut) / len(cut))
        for tile in range(5):
            assert one.hides(warpgroup, tile) == pytest.approx(sum(n > tile for n in cut) / len(cut))


def test_products_under_way_slow_the_softmax_down():
    def cycles(contention: float, **change) -> float:
        costs = replace(KERNEL.costs, contention=contention)
        return timeline(replace(KERNEL, costs=costs, **change), 16, recorded=False).item_cycles

    assert cycles(0.5) > 1.02 * cycles(0.0)
    alone = {"warpgroups": 1, "pingpong": False, "overlap": False}  # no product beside its softmax
    assert cycles(0.5, **alone) == pytest.approx(cycles(0.0, **alone))


def test_a_plans_schedule_is_what_runs():
    schedule = {"tile": {"q": 192, "kv": 80}, "roles": {"math": {"pingpong": False}}, "cluster": 2}
    p = planned(**schedule, scheduler="longest_first", softmax={"exp2": {"polynomial": 0.25}})
    one = kernel(p, V3_FORWARD)
    assert (one.warpgroups, one.kv, one.pingpong, one.cluster, one.persistent) == (3, 80, False, 2, False)
    assert (one.polynomial, one.masked_sides) == (0.25, 1)
    assert one.clock_hz == p.device.clock_hz


def test_v2_has_no_timeline():
    with pytest.raises(PlanError, match=r"t: family is 'v2'; allowed with a timeline: 'v3'"):
        kernel(planned("v2"), V3_FORWARD)


def test_text_has_a_line_for_each_role_and_engine():
    shown = timeline(KERNEL, 4)
    lines = timeline_text.lines(shown)
    rows = {line[: timeline_text.LABEL].strip(): line[timeline_text.LABEL :] for line in lines[:-1]}
    assert list(rows) == ["load", "math 0", "math 1", TENSOR, MUFU, FMA]
    assert all(len(line) <= 100 and line.isascii() for line in lines)
    assert {"K", "V", "Q"} <= set(rows["load"])
    assert set(rows["math 1"]) <= set("SxPo. ")
    assert set(rows[TENSOR]) == set("SP ")
    assert set(rows[MUFU]) == set("x ")


def test_report_says_what_is_predicted():
    text = timeline_text.report(planned(), Shape(2, 4096, 4096, 16, 16))
    assert "B,Sq,Sk,Hq,Hkv = 2,4096,4096,16,16" in text
    assert "us predicted; bound by" in text


def test_a_kernel_is_looked_up_once_for_all_work_items(monkeypatch):
    """Its hash is what costs."""
    asked = []
    monkeypatch.setattr("fagen.plan.timeline._drifting", lambda _, tiles: asked.append(tiles) or float(tiles))
    cycles = item_cycles(KERNEL)
    assert [cycles(tiles) for tiles in range(1, 1000)] == list(range(1, 1000))
    assert sorted(asked) == list(KNOTS)
