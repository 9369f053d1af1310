"""How fast the v3 kernel is, from the loads of the SM's engines: to rank tiles. `timeline.py` predicts times.

The model, in the order of its terms:
1. Each engine's work over its rate (the roofline of FlashAttention-4, arXiv 2603.05451, section 3).
2. TMA and wgmma run by themselves, and warpgroups fill each other's gaps, so the tile takes as long as its
   slowest engine. The engines inside the SM, which have to be handed work in turn, reach EFFICIENCY of their
   rates; L2 and HBM only have to keep up.
3. Without overlap a warpgroup's products and its softmax run one after the other, and only the other
   warpgroups fill the gaps.
4. Each tile has latencies of its own: barriers, the first and last wgmma, the shuffles of the row maximum.
With softmax.rescale: growth the tiles that find maxima are left out: a work item has few.

What it gets wrong, on an H200 at 8192 keys without a mask: it is up to 13% too slow at d >= 128, and up to
21% too fast at d = 64; long K/V tiles come out up to 3% ahead of short ones that are as fast. So among tiles
as close as that `v3.py` prefers what a work item gains by. For d = 64, 96 (causal), 128 and 192 this is the
fastest tile that was measured, for d = 256 it has 80 keys and is 1%, once 4%, slower than the one with 64.
"""

from __future__ import annotations

from functools import cache

from fagen.hw.arch import Arch
from fagen.hw.device import Device
from fagen.plan import engines
from fagen.plan.budget import Values
from fagen.plan.engines import (
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
from fagen.plan.symbols import Bc, Br, bytes_, cluster, d, dv, polynomial

EFFICIENCY = 0.8  # FlashAttention-3 and 4 reach about 80% of the wgmma peak where nothing else bounds
LATENCY_CYCLES = 250  # per tile


def predict(tiling: Tiling, at: Values, arch: Arch, device: Device) -> Engines:
    """The v3 kernel's loads per tile and the speed the model predicts for a full device, non-causal."""
    loads = engines.engine_loads(work(tiling), at, arch, device, tensor_flops(arch, tiling))
    return engines.engines(loads, tile_cycles(loads, tiling), at, device)


def tensor_flops(arch: Arch, tiling: Tiling) -> int:
    """Per clock and SM: of 8-bit elements wgmma multiplies twice as many as of 16-bit ones."""
    return 2 * arch.tensor_flops if tiling.is_fp8 else arch.tensor_flops


def tile_cycles(loads: tuple[EngineLoad, ...], tiling: Tiling) -> float:
    """Cycles from one tile to the next on an SM."""
    cycles = {load.engine: load.cycles for load in loads}
    inside = max(cycles[engine] for engine in (TENSOR, MUFU, FMA, SMEM))
    if not tiling.overlap:
        inside = max(inside, (cycles[TENSOR] + max(cycles[MUFU], cycles[FMA])) / (tiling.warps / 4))
    return max(inside / EFFICIENCY, cycles[L2], cycles[HBM]) + LATENCY_CYCLES


def work(tiling: Tiling) -> tuple[Work, ...]:
    """What one tile of the v3 kernel asks of each engine."""
    return _work(tiling.growth is None, tiling.rescales, tiling.softcap, tiling.transposers > 0)


@cache
def _work(finds_maxima: bool, rescales: bool, softcap: bool, transposes: bool) -> tuple[Work, ...]:
    softmax = SOFTMAX + (POLYNOMIAL_OPERATIONS * polynomial + SOFTCAP_OPERATIONS * softcap) * Br * Bc
    softmax += (MAXIMA if finds_maxima else 0) + (Br * dv if rescales else 0)
    # Written once by TMA; each warpgroup of 64 rows reads its Q, all of K and all of V (P is in registers).
    # To be transposed V is read and written once more.
    shared = KV_TILE + Br * d * bytes_ + Br / 64 * KV_TILE + (2 * Bc * dv * bytes_ if transposes else 0)
    return (
        Work(TENSOR, "FLOP", 2 * Br * Bc * (d + dv)),
        Work(MUFU, "ex2, rcp" if softcap else "ex2", Br * Bc * (1 - polynomial + SOFTCAP_MUFU * softcap)),
        Work(FMA, "fp32 operations", softmax),
        Work(SMEM, "bytes", shared),
        Work(L2, "bytes", KV_TILE / cluster),
        Work(HBM, "bytes", HBM_BYTES),
    )
