"""The engines models reproduce the published pictures, and v2's what was measured."""

from collections.abc import Callable
from dataclasses import replace
from math import log, sqrt
from statistics import mean
from typing import Any

import pytest

from fagen.hw.arch import ARCHES
from fagen.hw.device import DEVICES
from fagen.plan import budget, engines, v2_engines
from fagen.plan.ir import EngineLoad, Engines, Tiling
from fagen.plan.planner import plan
from fagen.spec.model import Spec


def tiling(q: int, kv: int, warps: int, ctas: int = 1, q_operand: str = "shared", stages: int = 2) -> Tiling:
    return Tiling(q, kv, warps, stages, ctas, q_operand, 8.0, "in_order")


def predict(device: str, dim: int, choice: Tiling):
    row = DEVICES[device]
    arch = ARCHES[row.arch]
    return v2_engines.predict(choice, budget.values(choice, dim, dim, 2, arch), arch, row)


def native_loads(device: str, dim: int) -> dict[str, float]:
    row = DEVICES[device]
    arch = ARCHES[row.arch]
    choice = tiling(128, 128, 8)
    at = budget.values(choice, dim, dim, 2, arch)
    work = v2_engines.work(choice)
    return cycles(engines.engine_loads(work, at, arch, row, arch.tensor_flops))


def cycles(loads: tuple[EngineLoad, ...]) -> dict[str, float]:
    return {load.engine: load.cycles for load in loads}


def test_on_b200_the_exp_of_a_tile_costs_as_much_as_both_its_mmas():
    # FlashAttention-4, arXiv 2603.05451, section 3: 1024 cycles each for 128 x 128 at d = 128.
    loads = native_loads("b200", 128)
    assert loads[engines.TENSOR] == loads[engines.MUFU] == 1024


def test_exp_bounds_d64_on_b200_twice_over_and_no_longer_on_b300():
    assert native_loads("b200", 64)[engines.MUFU] == 2 * native_loads("b200", 64)[engines.TENSOR]
    assert native_loads("b300", 128)[engines.MUFU] == native_loads("b300", 128)[engines.TENSOR] / 2


def test_exp_is_half_of_the_mmas_on_h100_at_d128():
    loads = native_loads("h100", 128)
    assert loads[engines.MUFU] == loads[engines.TENSOR] / 2


def test_a_soft_cap_is_two_more_special_functions_and_dropout_a_random_number():
    row, at = DEVICES["h200"], budget.values(tiling(128, 64, 8), 64, 64, 2, ARCHES["sm_90a"])

    def loads(**features: bool) -> dict[str, float]:
        work = v2_engines.work(replace(tiling(128, 64, 8), **features))
        return cycles(engines.engine_loads(work, at, ARCHES["sm_90a"], row, 1024))

    plain, capped, dropped = loads(), loads(softcap=True), loads(dropout=True)
    assert capped[engines.MUFU] == 3 * plain[engines.MUFU] and dropped[engines.MUFU] == plain[engines.MUFU]
    assert plain[engines.FMA] < capped[engines.FMA] < dropped[engines.FMA]


# TFLOP/s of the v2 kernel on an H200: bf16, no mask, 8192 keys, 16k tokens, hidden 2048; docs/performance.md.
MEASURED = [
    (128, tiling(256, 64, 8, stages=2), 384),
    (128, tiling(256, 64, 8, stages=3), 442),
    (128, tiling(256, 64, 8, stages=4), 430),
    (128, tiling(128, 64, 4, ctas=2), 395),
    (128, tiling(128, 32, 4, ctas=2, stages=4), 390),
    (128, tiling(128, 48, 4, ctas=2), 398),
    (128, tiling(128, 64, 8, ctas=2), 325),
    (128, tiling(64, 32, 4, ctas=3), 292),
    (128, tiling(192, 64, 6, stages=4), 301),
    (64, tiling(128, 64, 4, ctas=2, q_operand="registers"), 343),
    (64, tiling(128, 96, 4, ctas=2, q_operand="registers"), 352),
    (64, tiling(128, 96, 4, ctas=2, q_operand="registers", stages=3), 355),
    (64, tiling(128, 48, 4, ctas=3), 339),
    (64, tiling(128, 64, 8, ctas=2), 298),
    (64, tiling(256, 96, 8, q_operand="registers", stages=4), 370),
    (64, tiling(256, 64, 8, q_operand="registers", stages=4), 356),
    (256, tiling(128, 64, 8), 327),
    (256, tiling(128, 80, 8), 336),
    (256, tiling(128, 32, 8, q_operand="registers", stages=4), 362),
    (256, tiling(128, 48, 8, q_operand="registers", stages=3), 364),
    (256, tiling(128, 32, 8), 280),
    (256, tiling(64, 32, 4, ctas=2, q_operand="registers"), 304),
]


def test_the_model_was_fitted_to_what_an_h200_does():
    ratios = [predict("h200", dim, tile).tflops / measured for dim, tile, measured in MEASURED]
    assert max(max(ratios), 1 / min(ratios)) < 1.18
    assert sqrt(mean(log(ratio) ** 2 for ratio in ratios)) < 0.07


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_the_model_tells_good_tilings_from_bad_ones(dim: int):
    ours = [(predict("h200", d, tile).tflops, measured) for d, tile, measured in MEASURED if d == dim]
    chosen = max(ours)[1]
    assert chosen >= 0.9 * max(measured for _, measured in ours)


def test_a_prediction_stays_under_the_mma_peak():
    for device in DEVICES.values():
        peak = ARCHES[device.arch].mma_flops * device.sms * device.clock_hz / 1e12
        assert predict(device.name, 128, tiling(128, 64, 4)).tflops < peak


def test_rows_per_warp_set_the_shared_memory_traffic():
    def smem(choice: Tiling) -> float:
        return cycles(predict("h100", 128, choice).loads)[engines.SMEM]

    # 128 x 64 tiles, 32 KB of K and V: written once, read by every warp; 32 KB of Q read once.
    assert smem(tiling(128, 64, 4)) == (32_768 * (1 + 4) + 32_768) / 128
    assert smem(tiling(128, 64, 8)) == (32_768 * (1 + 8) + 32_768) / 128
    assert smem(tiling(128, 64, 4, q_operand="registers")) == 32_768 * (1 + 4) / 128


def test_the_bound_is_the_slowest_engine_and_says_its_work():
    predicted = predict("a100", 128, tiling(128, 64, 4))
    assert predicted.bound.engine == engines.TENSOR
    assert predicted.bound.cycles == predicted.tile_flops / 2048 == 2048
    assert predicted.bound.work == "2*Bc*Br*(d + dv) FLOP at 2048 per clock"


# The v3 kernel


@pytest.fixture
def v3(v3_spec: Callable[..., Spec]) -> Callable[..., Engines]:
    """The engines of a v3 plan: a tile and the rest of the schedule."""

    def make(q: int, kv: int, head_dim: int = 128, **schedule: Any) -> Engines:
        return plan(v3_spec({"tile": {"q": q, "kv": kv}, **schedule}, head_dim=head_dim)).engines

    return make


def test_v3_runs_on_the_wgmma_rate_of_its_arch(v3):
    loads = cycles(v3(128, 128).loads)
    assert loads[engines.TENSOR] == 2 * 128 * 128 * 256 / 4096
    assert loads[engines.MUFU] == loads[engines.TENSOR] / 2
    assert cycles(v3(192, 128, 64).loads)[engines.MUFU] == cycles(v3(192, 128, 64).loads)[engines.TENSOR]


def test_each_math_warpgroup_reads_k_and_v_and_p_stays_in_registers(v3):
    # 128 x 128 tiles of d = 128: 64 KB of K and V, written once and read by two warpgroups; 32 KB of Q.
    assert cycles(v3(128, 128).loads)[engines.SMEM] == (3 * 65_536 + 32_768) / 128


def test_a_polynomial_moves_exponentials_to_the_fma_pipe(v3):
    plain = cycles(v3(192, 128, 64).loads)
    shared = cycles(v3(192, 128, 64, softmax={"exp2": {"polynomial": 0.25}}).loads)
    assert shared[engines.MUFU] == 0.75 * plain[engines.MUFU]
    moved = 0.25 * 192 * 128 * engines.POLYNOMIAL_OPERATIONS / 128
    assert shared[engines.FMA] == plain[engines.FMA] + moved


def test_v2_takes_a_polynomial_as_well(v2_spec):
    def loads(**softmax: Any) -> dict[str, float]:
        schedule = {"tile": {"q": 128, "kv": 64}, "roles": {"math": {"warps": 4}}, "softmax": softmax}
        return cycles(plan(v2_spec(schedule=schedule)).engines.loads)

    plain, half = loads(), loads(exp2={"polynomial": 0.5})
    assert loads(exp2="hardware") == plain
    assert half[engines.MUFU] == plain[engines.MUFU] / 2
    assert half[engines.FMA] > plain[engines.FMA]


def test_without_maxima_a_score_costs_an_operation_less_and_o_is_left_alone(v3):
    def fma(rescale: Any) -> float:
        return cycles(v3(128, 128, softmax={"rescale": rescale}).loads)[engines.FMA]

    scores, of_o, of_rows = 128 * 128 / 128, 128 * 128 / 128, 32 * 128 / 128
    assert fma("always") - fma({"lazy": 8}) == of_o
    assert fma({"lazy": 8}) - fma({"growth": 30}) == scores + of_rows


def test_a_pair_of_ctas_halves_what_is_asked_of_l2(v3):
    alone, pair = (cycles(v3(128, 128, cluster=size).loads) for size in (1, 2))
    assert pair.pop(engines.L2) == alone.pop(engines.L2) / 2
    assert pair == alone


def test_softmax_hides_under_the_products_of_its_own_or_of_another_warpgroup(v3):
    def tflops(q: int, overlap: bool) -> float:
        return v3(q, 64, cluster=2, roles={"math": {"overlap": overlap}}).tflops

    assert tflops(64, overlap=True) > tflops(64, overlap=False)  # a warpgroup alone
    assert tflops(128, overlap=True) == tflops(128, overlap=False)


def test_v3_leaves_v2_behind_and_stays_under_the_wgmma_peak(v3):
    peak = 4096 * DEVICES["h200"].sms * DEVICES["h200"].clock_hz / 1e12
    assert 1.3 * predict("h200", 128, tiling(256, 64, 8, stages=3)).tflops < v3(128, 128).tflops < peak
