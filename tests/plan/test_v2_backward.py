"""The plan of v2's backward: what it takes of an SM, how warps split it, and that there always is one."""

from __future__ import annotations

import pytest

from fagen.errors import PlanError
from fagen.plan.kernels import kernels, main_kernel
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import predict
from fagen.plan.v2_backward import splits_evenly
from fagen.plan.v2_backward_budget import ADDRESSING, FRAGMENTS
from fagen.plan.v2_budget import REGISTERS

SMEM_SIZES = ("sm_80", "sm_89", "sm_90a")  # 163, 99 and 227 KB; the others have one of these
H200_TILE = {"tile": {"q": 64, "kv": 128}, "warps": {"q": 2, "kv": 4, "dq": 2}, "stages": {"q": 2, "ds": 2}}


@pytest.fixture(scope="module")
def backward(v2_spec):
    """Plans the backward of a v2 spec whose schedule.backward is given."""

    def make(arch="sm_90a", schedule=None, **problem):
        return plan(v2_spec(arch, {"backward": schedule or {}}, **problem), direction="backward")

    return make


def registers(planned):
    return next(account for account in planned.accounts if account.resource == REGISTERS)


@pytest.mark.parametrize("arch", SMEM_SIZES)
def test_every_head_dim_has_a_plan(backward, arch):
    for dim in range(32, 257, 32):
        for dim_v in {32, dim, 256}:
            for features in ({}, {"dropout": True, "softcap": 30.0, "deterministic": True, "layout": "thd"}):
                found = backward(arch, head_dim=dim, head_dim_v=dim_v, mask="causal", **features)
                assert all(account.fits for account in found.accounts)


@pytest.mark.parametrize("arch", SMEM_SIZES)
@pytest.mark.parametrize("dim", [8, 64, 72, 96, 128, 192, 256])
def test_warps_split_every_product_into_16_x_16_blocks(backward, arch, dim):
    found = backward(arch, head_dim=dim)
    tiling = found.tiling
    assert found.dim % 32 == 0 and dim <= found.dim < dim + 32
    assert tiling.warps == tiling.warps_q * tiling.warps_kv
    of_s = tiling.q / tiling.warps_q, tiling.kv / tiling.warps_kv
    of_dk = tiling.kv / tiling.warps_kv, found.dim / tiling.warps_q
    of_dv = tiling.kv / tiling.warps_kv, found.dim_v / tiling.warps_q
    of_dq = tiling.q / tiling.warps_dq, found.dim / (tiling.warps / tiling.warps_dq)
    assert all(side % 16 == 0 for part in (of_s, of_dk, of_dv, of_dq) for side in part)


def test_splits_evenly_is_true_of_whole_blocks_only():
    assert splits_evenly(64, 128, 128, 128, 2, 4, 2)
    assert not splits_evenly(32, 128, 128, 128, 4, 2, 2), "rows of Q"
    assert not splits_evenly(64, 64, 128, 128, 1, 8, 2), "rows of K"
    assert not splits_evenly(64, 128, 128, 128, 2, 4, 8), "rows of dQ"
    assert not splits_evenly(64, 128, 96, 96, 2, 4, 2), "columns of dQ"
    assert not splits_evenly(64, 128, 32, 32, 4, 2, 4), "columns of dK"
    assert not splits_evenly(64, 128, 128, 32, 4, 2, 2), "columns of dV"
    assert not splits_evenly(64, 128, 128, 128, 2, 4, 3), "warps along dQ"


@pytest.mark.parametrize(
    ("dim", "tile", "warps"),
    [(64, (128, 128), (2, 4, 4)), (128, (64, 128), (2, 4, 2)), (256, (64, 64), (4, 2, 2))],
)
def test_the_h200_has_two_tiles_of_everything(backward, dim, tile, warps):
    found = backward(head_dim=dim, mask="causal").tiling
    assert (found.q, found.kv) == tile
    assert (found.warps_q, found.warps_kv, found.warps_dq) == warps
    assert (found.stages, found.ds_stages, found.ctas_per_sm) == (2, 2, 1)


def test_registers_are_those_of_the_fragments(backward):
    account = registers(backward(schedule=H200_TILE, head_dim=128))
    # dK and dV: 32 x 64 fp32 of each of 8 warps; S and dP: 32 x 32 of each; dQ: 32 x 32
    assert [term.value for term in account.terms] == [2 * 64, 2 * 32, FRAGMENTS, ADDRESSING]
    # dQ is wider than S and dP together
    wide = {"tile": {"q": 64, "kv": 32}, "warps": {"q": 4, "kv": 2, "dq": 2}}
    assert registers(backward(schedule=wide, head_dim=256)).terms[1].value == 32 * 64 // 32


def test_dropout_takes_registers_beside_a_soft_cap_only(backward):
    plain, capped, dropped, both = (
        registers(backward(schedule=H200_TILE, **features))
        for features in ({}, {"softcap": 30.0}, {"dropout": True}, {"softcap": 30.0, "dropout": True})
    )
    assert plain == capped == dropped
    assert both.used == plain.used + 64 * 128 // 256 // 8


def test_buffers_tile_shared_memory_without_gap_or_overlap(backward):
    found = backward(schedule=H200_TILE, head_dim=128, head_dim_v=64)
    names = [buffer.name for buffer in found.buffers]
    assert names == ["k", "v", "q", "dout", "p", "ds", "stats"]
    end = 0
    for buffer in found.buffers:
        assert buffer.offset == end
        end += buffer.bytes
    sizes = dict(zip(names, (buffer.bytes for buffer in found.buffers), strict=True))
    assert sizes["q"] == 2 * 64 * 128 * 2 and sizes["dout"] == 2 * 64 * 64 * 2
    assert sizes["p"] == sizes["ds"] == 2 * 64 * 128 * 2
    assert sizes["stats"] == 2 * 64 * 2 * 4
    kernel = main_kernel(found)
    assert kernel.barriers_offset == end
    assert kernel.smem_bytes == end + 2 * 8 == found.accounts[0].used


def test_the_kernels_are_in_the_order_of_their_launches(backward):
    found = backward(head_dim=64)
    names = [(kernel.name, kernel.symbol, kernel.template) for kernel in kernels(found)]
    assert names == [
        ("backward_prepare", "fagen_t_bwd_prepare", "v2/backward_prepare.cu.j2"),
        ("backward", "fagen_t_bwd", "v2/backward.cu.j2"),
        ("backward_convert", "fagen_t_bwd_convert", "v2/backward_convert.cu.j2"),
    ]
    prepare, main, convert = kernels(found)
    assert (prepare.threads, prepare.smem_bytes) == (128, 0)
    assert main.threads == convert.threads == found.tiling.threads
    assert convert.smem_bytes == found.tiling.q * 64 * 2


def test_v3_has_v2s_backward(v2_spec, v3_spec):
    own, v2s = plan(v3_spec(), direction="backward"), plan(v2_spec("sm_90a"), direction="backward")
    assert own.tiling == v2s.tiling
    assert [kernel.template for kernel in kernels(own)] == [kernel.template for kernel in kernels(v2s)]


def test_what_the_spec_gives_is_kept(backward):
    given = H200_TILE | {"ctas_per_sm": 1, "scheduler": "in_order"}
    found = backward(schedule=given, head_dim=64, mask="causal")
    assert found.planned == ()
    assert (found.tiling.q, found.tiling.kv, found.tiling.warps_dq) == (64, 128, 2)
    assert found.tiling.scheduler == "in_order"


def test_the_order_follows_the_mask(backward):
    assert backward().tiling.scheduler == "in_order"
    assert backward(mask="causal").tiling.scheduler == "longest_first"


def test_a_tile_that_does_not_fit_gets_the_numbers_and_what_would(backward):
    with pytest.raises(PlanError) as caught:
        backward("sm_89", {"tile": {"q": 128, "kv": 128}}, head_dim=256)
    said = str(caught.value)
    assert "shared memory per CTA" in said and "backward.tile.q 128" in said
    assert "schedule.backward.tile.kv:" in said


def test_a_tile_that_no_warps_split_is_refused_by_its_keys(backward):
    with pytest.raises(PlanError, match=r"schedule.backward does not split evenly, with tile.q 48"):
        backward(schedule={"tile": {"q": 48}, "warps": {"q": 2, "dq": 2}})


def test_more_tiles_in_flight_are_predicted_no_slower(backward):
    speed = [
        backward(schedule=H200_TILE | {"stages": {"q": q, "ds": ds}}).engines.tflops
        for q, ds in ((1, 1), (1, 2), (2, 2))
    ]
    assert speed == sorted(speed)


def test_prediction_counts_five_products_and_half_of_them_under_a_causal_mask(backward):
    shape = Shape(2, 8192, 8192, 16, 4)
    none, causal = (predict(backward(mask=mask), shape) for mask in ("none", "causal"))
    assert none.flops == 2 * 2 * 16 * 8192 * 8192 * 5 * 128
    assert causal.seconds / none.seconds == pytest.approx(0.5, rel=0.1)
    assert predict(backward(), Shape(1, 0, 8, 1, 1)).flops == 0
