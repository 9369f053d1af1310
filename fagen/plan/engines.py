"""Feeds and speeds: cycles that each engine of an SM needs for one Br x Bc tile, and the speed that follows.

The model, in the order of its terms:
1. Each engine's work over its rate. The largest is the bound (the roofline of FlashAttention-4, arXiv
   2603.05451, section 3, with the traffic of an ldmatrix kernel for shared memory).
2. A warp of the v2 kernel runs its MMAs, its softmax and its ldmatrix one after another; only other warps of
   the same scheduler fill the gaps. So a share EXPOSED of the other engines' cycles shows, divided by the
   warps per scheduler.
3. Warps that do not share out evenly over the schedulers leave some of them idle.
4. A ring of two stages has no slack: every tile is a barrier for the CTA, which only other CTAs of the SM
   fill. With slack, or without, each tile has latencies of its own: the first ldmatrix, the last shuffles.
EXPOSED and the latencies are fitted to 22 tilings of the kernel, d = 64, 128, 256, measured on an H200: rms
7%, worst 17% off (tests/plan/test_engines.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import ceil

import sympy as sp

from fagen.hw.arch import Arch
from fagen.hw.device import Device
from fagen.plan.budget import Values
from fagen.plan.ir import EngineLoad, Engines, Tiling
from fagen.plan.symbols import Bc, Br, bytes_, d, dv, warps

EXPOSED = 0.6  # share of the non-bounding engines' cycles that one warp per scheduler cannot hide
LATENCY_CYCLES = 100  # per tile: the first ldmatrix, the last shuffles of the row maximum
STRAGGLER_CYCLES = 30  # per tile and warp, without slack in the ring: the slowest warp is waited for
FETCH_CYCLES = 1000  # from the issue of a tile's cp.async to its arrival under load
REFERENCE_SEQLEN = 8192  # a K/V tile is read from HBM once and then from L2 by this many rows of Q
SCHEDULERS = 4  # warp schedulers of an SM, on every arch so far

TENSOR, MUFU, FMA, SMEM, L2, HBM = "tensor core", "MUFU", "FMA", "shared memory", "L2", "HBM"
_ASYNCHRONOUS = (L2, HBM)  # no warp waits for these while the ring is full


@dataclass(frozen=True)
class _Work:
    engine: str
    unit: str
    amount: sp.Expr


def engine_loads(
    tiling: Tiling, at: Values, arch: Arch, device: Device, tensor_flops: float
) -> tuple[EngineLoad, ...]:
    """Cycles per tile of every engine; `tensor_flops` per clock and SM is arch.mma_flops or .tensor_flops."""
    clock = device.sms * device.clock_hz
    rates = {
        TENSOR: tensor_flops,
        MUFU: arch.mufu_per_clk,
        FMA: arch.fma_per_clk,
        SMEM: arch.smem_bytes_per_clk,
        L2: device.l2_bytes_per_s / clock,
        HBM: device.hbm_bytes_per_s / clock,
    }
    lazy = tiling.lazy_rescale is not None
    amounts = _evaluate(tiling.q_operand, lazy)(*(at[symbol] for symbol in _ARGUMENTS))
    return tuple(
        EngineLoad(work.engine, amount / rate, f"{_formula(work)} at {rate:.4g} per clock")
        for work, amount in zip(_work(tiling.q_operand, lazy), amounts, strict=True)
        for rate in (rates[work.engine],)
    )


def engines(tiling: Tiling, at: Values, arch: Arch, device: Device) -> Engines:
    """The v2 kernel's loads per tile and the speed the model predicts for a full device, non-causal."""
    loads = engine_loads(tiling, at, arch, device, arch.mma_flops)
    flops = 2 * at[Br] * at[Bc] * (at[d] + at[dv])
    cycles = tile_cycles(loads, tiling)
    return Engines(loads, flops, flops / cycles * device.sms * device.clock_hz / 1e12)


def tile_cycles(loads: tuple[EngineLoad, ...], tiling: Tiling) -> float:
    """Cycles from one tile to the next on an SM that holds `ctas_per_sm` CTAs of this tiling."""
    bound = max(loads, key=lambda load: load.cycles)
    waited = sum(load.cycles for load in loads if load is not bound and load.engine not in _ASYNCHRONOUS)
    per_scheduler = tiling.warps * tiling.ctas_per_sm / SCHEDULERS
    uneven = ceil(tiling.warps / SCHEDULERS) * SCHEDULERS / tiling.warps
    busy = uneven * (max(1.0, 1 / per_scheduler) * bound.cycles + EXPOSED * waited / per_scheduler)
    fetch = max(0.0, FETCH_CYCLES - (tiling.stages - 1) * tiling.ctas_per_sm * busy)
    barrier = STRAGGLER_CYCLES * tiling.warps if tiling.stages == 2 else 0.0
    return busy + (LATENCY_CYCLES + barrier + fetch) / tiling.ctas_per_sm


_ARGUMENTS = (Br, Bc, d, dv, bytes_, warps)


@cache
def _work(q_operand: str, lazy: bool) -> tuple[_Work, ...]:
    kv_tile = Bc * (d + dv) * bytes_
    # Per score: scale and subtract, maximum, sum, and half a conversion of a pair. Per row and tile: the
    # maximum and the scale, about 8 operations on each of the 4 lanes that share a row, and O rescaled.
    fp32 = Br * Bc * sp.Rational(7, 2) + 32 * Br + (0 if lazy else Br * dv)
    # Written once by cp.async, read whole by every warp; Q again at every tile unless it stays in registers.
    shared = kv_tile + warps * kv_tile + (Br * d * bytes_ if q_operand == "shared" else 0)
    return (
        _Work(TENSOR, "FLOP", 2 * Br * Bc * (d + dv)),
        _Work(MUFU, "ex2", Br * Bc),
        _Work(FMA, "fp32 operations", fp32),
        _Work(SMEM, "bytes", shared),
        _Work(L2, "bytes", kv_tile),
        _Work(HBM, "bytes", 2 * Br * Bc * (d + dv) * bytes_ / REFERENCE_SEQLEN),
    )


@cache
def _evaluate(q_operand: str, lazy: bool) -> Callable[..., list[float]]:
    return sp.lambdify(_ARGUMENTS, [work.amount for work in _work(q_operand, lazy)], modules="math")


@cache
def _formula(work: _Work) -> str:
    return f"{sp.factor_terms(work.amount)} {work.unit}"
