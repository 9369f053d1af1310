"""How fast v2's backward is, from the loads of the SM's engines: to rank tiles.

The model is that of v2_engines.py, with its constants: a warp runs its five products, its ldmatrix and its
exponentials one after another, and only other warps of the same scheduler fill the gaps. Beyond that each
exchange of P and dS through shared memory waits for the slowest warp.
"""

from __future__ import annotations

from functools import cache

from fagen.hw.arch import Arch
from fagen.hw.device import Device
from fagen.plan import engines
from fagen.plan.budget import Values
from fagen.plan.efficiency import PLANNER, MmaSync
from fagen.plan.engines import (
    DROPOUT_OPERATIONS,
    FMA,
    HBM,
    L2,
    MUFU,
    REFERENCE_SEQLEN,
    SMEM,
    SOFTCAP_MUFU,
    SOFTCAP_OPERATIONS,
    TENSOR,
    Work,
)
from fagen.plan.ir import EngineLoad, Engines, Tiling
from fagen.plan.symbols import Bc, Br, bytes_, d, dv, warps, warps_dq, warps_q
from fagen.plan.v2_engines import SCHEDULERS

FLOPS = 2 * Br * Bc * (3 * d + 2 * dv)  # S, dK and dQ have d columns or terms, dP and dV dv
# Per score: scale and subtract, dP - delta, times P, and half a conversion of each of P and dS.
SOFTMAX = 4 * Br * Bc
UNCAP_OPERATIONS = 5  # per score: the capped score out of log2(P), its derivative, times dS
STATISTICS = 8  # bytes of a row's LSE and delta
DQ_SUM = 4  # bytes of an element of the fp32 sum


def predict(tiling: Tiling, at: Values, arch: Arch, device: Device) -> Engines:
    """The kernel's loads per tile and the speed the model predicts for a full device, non-causal."""
    loads = engines.engine_loads(work(tiling.softcap, tiling.dropout), at, arch, device, arch.mma_flops)
    flops = int(2 * at[Br] * at[Bc] * (3 * at[d] + 2 * at[dv]))
    tflops = flops / tile_cycles(loads, tiling, PLANNER) * device.sms * device.clock_hz / 1e12
    return Engines(loads, flops, tflops)


def tile_cycles(loads: tuple[EngineLoad, ...], tiling: Tiling, costs: MmaSync) -> float:
    """Cycles from one tile to the next on an SM that holds `ctas_per_sm` CTAs of this tiling."""
    bound = max(loads, key=lambda load: load.cycles)
    waited = sum(load.cycles for load in loads if load is not bound and load.engine not in (L2, HBM))
    per_scheduler = tiling.warps * tiling.ctas_per_sm / SCHEDULERS
    busy = max(1.0, 1 / per_scheduler) * bound.cycles + costs.exposed * waited / per_scheduler
    fetch = max(0.0, costs.fetch - (tiling.stages - 1) * tiling.ctas_per_sm * busy)
    # All warps wait for each other when P and dS are there, and with one tile of each when they are used up.
    exchanges = 3 - tiling.ds_stages
    waits = exchanges * (costs.latency + costs.straggler * tiling.warps)
    return busy + (waits + fetch) / tiling.ctas_per_sm


@cache
def work(softcap: bool = False, dropout: bool = False) -> tuple[Work, ...]:
    """What one tile asks of each engine."""
    warps_kv = warps / warps_q
    q_tiles = Br * (d + dv) * bytes_  # Q and dO
    kv_tiles = Bc * (d + dv) * bytes_
    scores = Br * Bc * bytes_
    features = (SOFTCAP_OPERATIONS + UNCAP_OPERATIONS) * softcap + DROPOUT_OPERATIONS * dropout
    shared = (
        2 * warps_kv * q_tiles  # as they arrive in S and dP, and in dK and dV
        + q_tiles  # written by cp.async
        + warps_q * kv_tiles  # S and dP
        + 2 * scores  # P and dS, written
        + 2 * warps_q * scores  # read for dV and dK
        + warps / warps_dq * scores  # dS, for dQ
        + warps_dq * Bc * d * bytes_  # K, for dQ
    )
    # Read once by one head's K/V tiles side by side: Q, dO; and K, V, dK, dV, shared by its Q tiles.
    hbm = (q_tiles * Bc + 2 * kv_tiles * Br) / REFERENCE_SEQLEN
    return (
        Work(TENSOR, "FLOP", FLOPS),
        Work(MUFU, "ex2, lg2, rcp" if softcap else "ex2", Br * Bc * (1 + (SOFTCAP_MUFU + 1) * softcap)),
        Work(FMA, "fp32 operations", SOFTMAX + features * Br * Bc),
        Work(SMEM, "bytes", shared),
        Work(L2, "bytes", q_tiles + Br * (STATISTICS + DQ_SUM * d)),
        Work(HBM, "bytes", hbm),
    )
