"""How fast the v2 kernel is, from the loads of the SM's engines.

The model, in the order of its terms:
1. Each engine's work over its rate. The largest is the bound (the roofline of FlashAttention-4, arXiv
   2603.05451, section 3, with the traffic of an ldmatrix kernel for shared memory).
2. A warp of the v2 kernel runs its MMAs, its softmax and its ldmatrix one after another; only other warps of
   the same scheduler fill the gaps. So a share `exposed` of the other engines' cycles shows, divided by the
   warps per scheduler.
3. Warps that do not share out evenly over the schedulers leave some of them idle.
4. A ring of two stages has no slack: every tile is a barrier for the CTA, which only other CTAs of the SM
   fill. With slack, or without, each tile has latencies of its own: the first ldmatrix, the last shuffles.
These numbers (efficiency.py) are fitted to 22 tilings of the kernel, d = 64, 128, 256, measured on an H200:
rms 7%, worst 17% off (tests/plan/test_engines.py).
"""

from __future__ import annotations

from functools import cache
from math import ceil

from fagen.hw.arch import Arch
from fagen.hw.device import Device
from fagen.plan import engines
from fagen.plan.budget import Values
from fagen.plan.efficiency import PLANNER, MmaSync
from fagen.plan.engines import (
    DROPOUT_OPERATIONS,
    FMA,
    HBM,
    HBM_BYTES,
    KV_TILE,
    L2,
    MAXIMA,
    MUFU,
    POLYNOMIAL_OPERATIONS,
    SMEM,
    SOFTCAP_MUFU,
    SOFTCAP_OPERATIONS,
    SOFTMAX,
    TENSOR,
    Work,
)
from fagen.plan.ir import EngineLoad, Engines, Tiling
from fagen.plan.symbols import Bc, Br, bytes_, d, dv, polynomial, warps

SCHEDULERS = 4  # warp schedulers of an SM, on every arch so far

_ASYNCHRONOUS = (L2, HBM)  # no warp waits for these while the ring is full


def predict(tiling: Tiling, at: Values, arch: Arch, device: Device) -> Engines:
    """The v2 kernel's loads per tile and the speed the model predicts for a full device, non-causal."""
    loads = engines.engine_loads(work(tiling), at, arch, device, arch.mma_flops)
    return engines.engines(loads, tile_cycles(loads, tiling, PLANNER), at, device)


def tile_cycles(loads: tuple[EngineLoad, ...], tiling: Tiling, costs: MmaSync) -> float:
    """Cycles from one tile to the next on an SM that holds `ctas_per_sm` CTAs of this tiling."""
    bound = max(loads, key=lambda load: load.cycles)
    waited = sum(load.cycles for load in loads if load is not bound and load.engine not in _ASYNCHRONOUS)
    per_scheduler = tiling.warps * tiling.ctas_per_sm / SCHEDULERS
    uneven = ceil(tiling.warps / SCHEDULERS) * SCHEDULERS / tiling.warps
    busy = uneven * (max(1.0, 1 / per_scheduler) * bound.cycles + costs.exposed * waited / per_scheduler)
    fetch = max(0.0, costs.fetch - (tiling.stages - 1) * tiling.ctas_per_sm * busy)
    barrier = costs.straggler * tiling.warps if tiling.stages == 2 else 0.0
    return busy + (costs.latency + barrier + fetch) / tiling.ctas_per_sm


def work(tiling: Tiling) -> tuple[Work, ...]:
    """What one tile of the v2 kernel asks of each engine."""
    return _work(tiling.q_operand, tiling.rescales, tiling.softcap, tiling.dropout)


@cache
def _work(q_operand: str, rescales: bool, softcap: bool, dropout: bool) -> tuple[Work, ...]:
    features = SOFTCAP_OPERATIONS * softcap + DROPOUT_OPERATIONS * dropout
    softmax = SOFTMAX + MAXIMA + (POLYNOMIAL_OPERATIONS * polynomial + features) * Br * Bc
    # Written once by cp.async, read whole by every warp; Q again at every tile unless it stays in registers.
    shared = KV_TILE + warps * KV_TILE + (Br * d * bytes_ if q_operand == "shared" else 0)
    return (
        Work(TENSOR, "FLOP", 2 * Br * Bc * (d + dv)),
        Work(MUFU, "ex2, rcp" if softcap else "ex2", Br * Bc * (1 - polynomial + SOFTCAP_MUFU * softcap)),
        Work(FMA, "fp32 operations", softmax + (Br * dv if rescales else 0)),
        Work(SMEM, "bytes", shared),
        Work(L2, "bytes", KV_TILE),
        Work(HBM, "bytes", HBM_BYTES),
    )
