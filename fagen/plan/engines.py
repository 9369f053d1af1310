"""Feeds and speeds: cycles that each engine of an SM needs for one Br x Bc tile.

The work is each family's own, and so is what follows from the loads: `v2_engines.py`, `v3_engines.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import sympy as sp

from fagen.hw.arch import Arch
from fagen.hw.device import Device
from fagen.plan.budget import Values
from fagen.plan.ir import EngineLoad, Engines
from fagen.plan.symbols import Bc, Br, bytes_, d, dv

REFERENCE_SEQLEN = 8192  # a K/V tile is read from HBM once and then from L2 by this many rows of Q

TENSOR, MUFU, FMA, SMEM, L2, HBM = "tensor core", "MUFU", "FMA", "shared memory", "L2", "HBM"

# Per score: scale and subtract, sum, and half a conversion of a pair.
SOFTMAX = Br * Bc * sp.Rational(5, 2)
# Per score one operation. Per row and tile: the exchange and the scale, about 8 on each of the 4 lanes that
# share a row.
MAXIMA = Br * Bc + 32 * Br
POLYNOMIAL_OPERATIONS = 8  # per exponential off the exp2 unit: range reduction, 3 FMA, the exponent put back
# Of a soft cap, per score: exp2 and reciprocal; a product, a sum and a fused pair.
SOFTCAP_MUFU, SOFTCAP_OPERATIONS = 2, 3
# Of dropout, per score: an eighth of Philox's ten rounds, each of 2 wide products at half rate and 4 others;
# then its random number is cut out and compared, and the score kept or not.
DROPOUT_OPERATIONS = 13
KV_TILE = Bc * (d + dv) * bytes_
HBM_BYTES = 2 * Br * Bc * (d + dv) * bytes_ / REFERENCE_SEQLEN


@dataclass(frozen=True)
class Work:
    """What one tile asks of an engine, in units that the engine does so many of per clock."""

    engine: str
    unit: str
    amount: sp.Expr


def engine_loads(
    works: tuple[Work, ...], at: Values, arch: Arch, device: Device, tensor_flops: float
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
    amounts = _evaluate(works, tuple(at))(*at.values())
    return tuple(
        EngineLoad(work.engine, amount / rate, f"{_formula(work)} at {rate:.4g} per clock")
        for work, amount in zip(works, amounts, strict=True)
        for rate in (rates[work.engine],)
    )


def engines(loads: tuple[EngineLoad, ...], cycles: float, at: Values, device: Device) -> Engines:
    """The loads, and the speed of a full device, non-causal, with a tile every so many cycles on each SM."""
    flops = int(2 * at[Br] * at[Bc] * (at[d] + at[dv]))
    return Engines(loads, flops, flops / cycles * device.sms * device.clock_hz / 1e12)


@cache
def _evaluate(works: tuple[Work, ...], arguments: tuple[sp.Symbol, ...]) -> Callable[..., list[float]]:
    return sp.lambdify(arguments, [work.amount for work in works], modules="math")


@cache
def _formula(work: Work) -> str:
    return f"{sp.factor_terms(work.amount)} {work.unit}"
