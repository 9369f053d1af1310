"""How fast v1's kernels are on an SM that has a CTA, from the loads of its engines.

The model is that of v2_engines.py, with its constants, and what v1 moves besides. At every step O, l and m of
a Q block come from global memory; in the forward they go back, in the backward dQ is added to there. O and dQ
are fp32 between registers and memory. A CTA of the forward has no barrier within a K/V block; in the backward
its warps meet at each step.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from fagen.hw.arch import Arch
from fagen.hw.device import Device
from fagen.plan import engines, v2_backward_engines
from fagen.plan.budget import Values
from fagen.plan.efficiency import PLANNER
from fagen.plan.engines import (
    FMA,
    HBM,
    KV_TILE,
    L2,
    MAXIMA,
    MUFU,
    REFERENCE_SEQLEN,
    SMEM,
    SOFTMAX,
    TENSOR,
    Work,
)
from fagen.plan.formulas import ACCUMULATOR
from fagen.plan.ir import EngineLoad, Engines, Tiling
from fagen.plan.symbols import Bc, Br, bytes_, d, dv, warps
from fagen.plan.v2_engines import SCHEDULERS

_MEMORY = (L2, HBM)
_STATISTICS = 8  # bytes of a row's l and m

_Q, _O = Br * d * bytes_, Br * dv * bytes_  # of one block
_O_SUM, _DQ_SUM = ACCUMULATOR * Br * dv, ACCUMULATOR * Br * d


def predict_forward(tiling: Tiling, at: Values, arch: Arch, device: Device) -> Engines:
    """The forward's loads per step and the speed the model predicts with a CTA on every SM, non-causal."""
    loads = engines.engine_loads(forward_work(), at, arch, device, arch.mma_flops)
    return _engines(loads, _busy(loads, tiling) + PLANNER.latency, arch, device)


def predict_backward(tiling: Tiling, at: Values, arch: Arch, device: Device) -> Engines:
    """The same of the backward, whose loads are under way for most of a step: memory is another bound."""
    loads = engines.engine_loads(backward_work(), at, arch, device, arch.mma_flops)
    on_chip = tuple(load for load in loads if load.engine not in _MEMORY)
    barriers = 3 - tiling.stages  # P and dS are there; of one stage also that Q and dO are used up
    waits = barriers * (PLANNER.latency + PLANNER.straggler * tiling.warps)
    memory = max(load.cycles for load in loads if load.engine in _MEMORY)
    fetch = PLANNER.fetch if tiling.stages == 1 else 0
    return _engines(loads, max(_busy(on_chip, tiling) + waits, memory) + fetch, arch, device)


@cache
def forward_work() -> tuple[Work, ...]:
    """What one step of the forward asks of each engine."""
    moved = _Q + 2 * _O_SUM + 2 * Br * _STATISTICS
    return (
        Work(TENSOR, "FLOP", 2 * Br * Bc * (d + dv)),
        Work(MUFU, "ex2", sp.Integer(1) * Br * Bc),
        Work(FMA, "fp32 operations", SOFTMAX + MAXIMA + Br * Bc + 2 * Br * dv),  # P, O by its two factors
        Work(SMEM, "bytes", warps * KV_TILE + 2 * _Q),  # every warp reads all of K and V; Q comes and is read
        Work(L2, "bytes", moved),
        Work(HBM, "bytes", moved + KV_TILE * Br / REFERENCE_SEQLEN),
    )


@cache
def backward_work() -> tuple[Work, ...]:
    """What one step of the backward asks of each engine."""
    v2 = {one.engine: one.amount for one in v2_backward_engines.work()}
    moved = _Q + 2 * _O + _DQ_SUM + Br * _STATISTICS
    return (
        Work(TENSOR, "FLOP", v2[TENSOR]),
        Work(MUFU, "ex2", v2[MUFU]),
        Work(FMA, "fp32 operations", v2[FMA] + 2 * Br * dv),
        Work(SMEM, "bytes", v2[SMEM] + 3 * _O),  # beyond v2: O comes, O and dO are read for D
        Work(L2, "bytes", moved),
        # L2 fetches dQ to add to it.
        Work(HBM, "bytes", moved + _DQ_SUM + 2 * KV_TILE * Br / REFERENCE_SEQLEN),
    )


def _engines(loads: tuple[EngineLoad, ...], cycles: float, arch: Arch, device: Device) -> Engines:
    """The loads, and the speed of a full device with a step every so many cycles on each SM."""
    flops = round(loads[0].cycles * arch.mma_flops)  # the tensor core's
    return Engines(loads, flops, flops / cycles * device.sms * device.clock_hz / 1e12)


def _busy(loads: tuple[EngineLoad, ...], tiling: Tiling) -> float:
    """Cycles of a step but for waits."""
    bound = max(loads, key=lambda load: load.cycles)
    waited = sum(load.cycles for load in loads if load is not bound and load.engine not in _MEMORY)
    per_scheduler = tiling.warps / SCHEDULERS
    uneven = -(-tiling.warps // SCHEDULERS) / per_scheduler
    return uneven * (max(1.0, 1 / per_scheduler) * bound.cycles + PLANNER.exposed * waited / per_scheduler)
