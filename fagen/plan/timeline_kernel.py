"""What a timeline of the v3 kernel depends on: its schedule, the SM's rates, and its efficiency."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd

from fagen.errors import PlanError
from fagen.hw.dtypes import DTYPES
from fagen.plan import v3_engines
from fagen.plan.efficiency import Wgmma
from fagen.plan.ir import Plan

ROWS = 64  # rows of Q that a warpgroup owns
SECTOR = 32  # bytes that L2 hands out at once
STEP = 32  # bytes of a row of a factor that a wgmma takes


@dataclass(frozen=True)
class Kernel:
    """What the run depends on: the kernel's schedule, and rates per SM and clock."""

    warpgroups: int
    kv: int  # rows of a K or V tile
    dim: int  # columns of Q and K that are multiplied: not those that pad a tile
    dim_v: int
    element_bytes: int
    split_k: bool  # rows of K that begin in the middle of a sector
    split_v: bool
    stages: int
    q_stages: int
    pingpong: bool
    overlap: bool
    rescale: bool  # O, where the maxima are found
    growth: bool  # no maxima but at the first tile and where the mask cuts
    polynomial: float  # share of exp2 off the MUFU
    softcap: bool
    cluster: int
    persistent: bool
    masked_sides: int  # of a work item's K/V tiles: 1 for causal, 2 for a window
    tensor_flops: float
    mufu: float  # ex2
    lanes: float  # fp32 lanes, also what the schedulers issue
    smem_bytes: float
    l2_bytes: float
    hbm_bytes: float
    clock_hz: float
    costs: Wgmma

    def masked(self, warpgroup: int) -> float:
        """K/V tiles of a work item that the mask hides from any of the warpgroup's rows, on the mean."""
        return self.masked_sides * _cut(self.warpgroups * ROWS, warpgroup * ROWS, self.kv)

    def hides(self, warpgroup: int, tile: int) -> float:
        """The share of work items whose tile `tile` is one of those."""
        return min(1.0, max(0.0, self.masked(warpgroup) - tile))

    def finds_maxima(self, warpgroup: int, tile: int) -> float:
        """The share of work items at whose tile `tile` the softmax does."""
        return 1.0 if not self.growth or not tile else self.hides(warpgroup, tile)


@cache
def _cut(q: int, row: int, kv: int) -> float:
    """K/V tiles that a causal mask cuts for the rows of a tile of `q` queries from its row `row` on.

    Those up to the tile's last query, but for the ones that `row` sees whole: more where Q tiles do not begin
    with a K/V tile. The mean over the Q tiles of a long sequence.
    """
    starts = range(0, q * kv // gcd(q, kv), q)
    return sum(-(-(start + q) // kv) - (start + row + 1) // kv for start in starts) / len(starts)


def kernel(plan: Plan, costs: Wgmma) -> Kernel:
    """The kernel of a v3 plan on a device of this efficiency. Raises PlanError for another family."""
    spec, tiling, device = plan.spec, plan.tiling, plan.device
    per_sm, element = 1 / (device.sms * device.clock_hz), DTYPES[spec.problem.dtype].bytes
    if spec.family != "v3":
        raise PlanError(f"{spec.name}: family is {spec.family!r}; allowed with a timeline: 'v3'")
    return Kernel(
        warpgroups=tiling.q // ROWS,
        kv=tiling.kv,
        dim=-(-spec.problem.head_dim * element // STEP) * STEP // element,
        dim_v=plan.dim_v,
        element_bytes=element,
        split_k=spec.problem.head_dim * element % SECTOR > 0,
        split_v=spec.problem.dim_v * element % SECTOR > 0,
        stages=tiling.stages,
        q_stages=tiling.q_stages,
        pingpong=tiling.pingpong,
        overlap=tiling.overlap,
        rescale=tiling.lazy_rescale is None,
        growth=tiling.growth is not None,
        polynomial=tiling.polynomial,
        softcap=tiling.softcap,
        cluster=tiling.cluster,
        persistent=tiling.scheduler.startswith("persistent"),
        masked_sides=sum(side is not None for side in spec.problem.window),
        tensor_flops=v3_engines.tensor_flops(plan.arch, plan.tiling) * costs.tensor,
        mufu=plan.arch.mufu_per_clk * costs.mufu,
        lanes=plan.arch.fma_per_clk,
        smem_bytes=plan.arch.smem_bytes_per_clk,
        l2_bytes=device.l2_bytes_per_s * per_sm * costs.l2,
        hbm_bytes=device.hbm_bytes_per_s * per_sm,
        clock_hz=device.clock_hz,
        costs=costs,
    )
