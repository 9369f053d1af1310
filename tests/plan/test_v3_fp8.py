"""Plans of v3's 8-bit forward: tiles, buffers, barriers, registers, maps, and what is printed of them."""

from __future__ import annotations

from typing import Any

import pytest

from fagen.emit.render import render
from fagen.errors import PlanError
from fagen.plan.arguments import arguments
from fagen.plan.descales import Step
from fagen.plan.ir import Plan
from fagen.plan.kernels import main_kernel
from fagen.plan.launch import Shape, launch
from fagen.plan.maps import Strides
from fagen.plan.planner import plan

TILE = {"tile": {"q": 128, "kv": 128}}


@pytest.fixture
def planned(v3_spec):
    """Plans a forward of e4m3, head_dim 128, no mask, unless the arguments say otherwise."""

    def make(schedule: dict[str, Any] | None = None, **problem: Any) -> Plan:
        return plan(v3_spec(schedule, **({"dtype": "e4m3", "passes": ("forward",)} | problem)))

    return make


def buffers(planned: Plan) -> dict[str, tuple[int, int, int, int]]:
    return {own.name: (own.rows, own.cols, own.stages, own.bytes) for own in planned.buffers}


def test_v_arrives_in_a_ring_of_its_own_and_is_transposed_into_another(planned):
    assert buffers(planned(TILE)) == {
        "q": (128, 128, 2, 32768),
        "k": (128, 128, 2, 32768),
        "v": (128, 128, 2, 32768),
        "vt": (128, 128, 2, 32768),
        "o": (128, 128, 1, 32768),  # of 16 bits
    }
    names = [barrier.name for barrier in planned(TILE).barriers]
    assert names[-3:] == ["vt_full", "vt_empty", "v_end"]


def test_a_transposed_v_needs_no_second_ring(planned):
    found = planned({"tile": {"q": 128, "kv": 64}}, v_transposed=True)
    assert buffers(found)["v"] == (128, 64, 2, 16384) and "vt" not in buffers(found)
    assert found.tiling.transposers == 0
    assert not {barrier.name for barrier in found.barriers} & {"vt_full", "vt_empty", "v_end"}


@pytest.mark.parametrize(("fp8", "fetched"), [(None, True), ({"scale": "block"}, False)])
def test_the_load_role_fetches_the_descales_of_a_head(fp8, fetched, planned):
    slots = [barrier.stages for barrier in planned(TILE, fp8=fp8).barriers if barrier.name == "descales"]
    assert slots == ([2] if fetched else [])


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("promoted", [None, 128])
def test_every_head_size_has_a_plan_of_several_warpgroups(dim, blocks, promoted, planned):
    if dim == 256 and promoted:
        with pytest.raises(PlanError, match=r"O sums = dv/2 = 128"):
            planned({"accumulate": {"promote_every": promoted}}, head_dim=dim)
        return
    fp8 = {"scale": "block"} if blocks else None
    tiling = planned({"accumulate": {"promote_every": promoted}}, head_dim=dim, fp8=fp8).tiling
    assert tiling.is_fp8 and tiling.q > 64 and tiling.kv % 32 == 0
    assert tiling.transposers == 3 and tiling.load_registers == 56
    assert not blocks or 128 % tiling.kv == 0
    assert not promoted or promoted % tiling.kv == 0


@pytest.mark.parametrize(("dim", "blocks", "kv"), [(128, 0, 192), (128, 1, 128), (256, 0, 96), (256, 1, 64)])
def test_of_two_warpgroups_tiles_are_as_long_as_was_measured_to_be_fastest(dim, blocks, kv, planned):
    fp8 = {"scale": "block"} if blocks else None
    assert planned({"tile": {"q": 128}}, head_dim=dim, fp8=fp8).tiling.kv == kv


def test_the_shared_memory_wanted_is_named(planned):
    with pytest.raises(PlanError) as refused:
        planned({"tile": {"q": 128, "kv": 224}})
    for message in (
        "shared memory per CTA: 237,744 bytes wanted, 232,448 allowed",
        "V^T ring = Bc*bytes*dv*stages = 57,344",
        "O tile = 2*Br*dv = 32,768",
        "P operand = Bc/8 = 28",
    ):
        assert message in str(refused.value)


@pytest.mark.parametrize("q, kv, dim", [(192, 96, 128), (128, 128, 256)])
def test_what_ptxas_spills_is_refused(q, kv, dim, planned):
    with pytest.raises(PlanError, match="registers per math thread"):
        planned({"tile": {"q": q, "kv": kv}}, head_dim=dim)


def test_wgmma_multiplies_8_bits_at_twice_the_rate_and_a_transposed_v_spares_shared_memory(planned):
    def cycles(found: Plan) -> dict[str, float]:
        return {load.engine: load.cycles for load in found.engines.loads}

    assert cycles(planned(TILE))["tensor core"] == 1024
    by_kernel, by_user = (cycles(planned(TILE, v_transposed=own))["shared memory"] for own in (False, True))
    assert (by_kernel, by_user) == (1152, 896)


@pytest.mark.parametrize(
    ("rescale", "offset", "printed"),
    [
        ("always", 8, "kLazy = -1.0f"),
        ({"lazy": 3}, 5, "kLazy = 3.0f"),
        ({"growth": 5}, 3, "kGrowth = 448.0f"),
        (None, 3, "kGrowth = 448.0f"),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_p_starts_as_large_as_its_growth_leaves_room_for(rescale, offset, printed, dtype, planned):
    """P is e4m3, at most 448, whatever q, k and v are."""
    text = render(main_kernel(planned(TILE | {"softmax": {"rescale": rescale}}, dtype=dtype))).text
    assert f"Softmax<1, {offset}>;" in text and printed in text


def maps(found: Plan, keys: int) -> dict[str, Any]:
    shape, transposed = Shape(2, 70, keys, 4, 2), found.spec.problem.v_transposed
    dim, step = found.spec.problem.head_dim, Step(2, 1)
    queries, rows = Strides(70 * 4 * dim, 4 * dim, dim), Strides(keys * 2 * dim, 2 * dim, dim)
    columns = Strides(2 * dim * keys, keys, dim * keys)
    strides = {"q": queries, "k": rows, "v": columns if transposed else rows, "out": queries}
    steps: dict[str, Step] = {name: step for name in ("q_descale", "k_descale", "v_descale")}
    return arguments(main_kernel(found), shape, launch(found, shape, 1.0), strides, steps).maps


@pytest.mark.parametrize(("dim", "panel"), [(64, 64), (128, 128), (256, 128)])
def test_boxes_have_panels_of_bytes(dim, panel, planned):
    found = maps(planned({"tile": {"q": 128, "kv": 64}}, head_dim=dim), keys=96)
    assert [(found[name].dtype, found[name].box, found[name].swizzle) for name in "qkv"] == [
        ("e4m3", (panel, 64, 1, 1), panel)
    ] * 3
    assert found.keys() == {*"qkv", "out"} and found["out"].dtype == "bf16"
    assert found["out"].box == (64, 64, 1, 1) and found["out"].swizzle == 128


def test_a_transposed_v_has_boxes_of_keys_and_k_boxes_of_two_keys_in_four(planned):
    found = maps(planned({"tile": {"q": 128, "kv": 64}}, v_transposed=True), keys=96)
    assert (found["v"].dims, found["v"].box, found["v"].swizzle) == ((96, 128, 2, 2), (64, 128, 1, 1), 64)
    assert (found["k"].dims, found["k"].box) == ((128, 4, 24, 2, 2), (128, 2, 16, 1, 1))
    assert found["k"].strides[:2] == (256, 1024)


def test_keys_beside_a_transposed_v_come_in_fours(planned):
    with pytest.raises(PlanError, match=r"seqlen_k is 98; allowed with problem.v_transposed: multiples of 4"):
        maps(planned({"tile": {"q": 128, "kv": 64}}, v_transposed=True), keys=98)
