"""The launch of a planned kernel on one shape: grid and scalar parameters. Plain integers, no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from fagen.errors import PlanError
from fagen.hw.dtypes import DTYPES
from fagen.plan.ir import Plan

INT32_MAX = 2**31 - 1  # largest grid in x, and what the kernel's int32 parameters hold


@dataclass(frozen=True)
class Shape:
    """Sizes of one call; heads_q is a multiple of heads_kv."""

    batch: int
    seqlen_q: int
    seqlen_k: int
    heads_q: int
    heads_kv: int

    def __str__(self) -> str:
        """As the command line spells it: B,Sq,Sk,Hq,Hkv."""
        return f"{self.batch},{self.seqlen_q},{self.seqlen_k},{self.heads_q},{self.heads_kv}"


class Scalars(NamedTuple):
    """The scalar fields of `params.FORWARD`, in their order, which are also its last fields."""

    batch: int
    heads_q: int
    heads_per_kv: int
    seqlen_q: int
    seqlen_k: int
    q_tiles: int
    heads_in_l2: int
    scale_log2: float


@dataclass(frozen=True)
class Launch:
    """CTAs of the 1-D grid (0: nothing to compute, do not launch) and the kernel's scalars."""

    grid: int
    scalars: Scalars


def launch(plan: Plan, shape: Shape, scale: float) -> Launch:
    """The grid of batch * heads_q * ceil(seqlen_q / Br) CTAs and the scalars, for softmax scale `scale`.

    Raises PlanError if the grid or a size is beyond what the kernel's 32-bit integers hold.
    """
    q_tiles = -(-shape.seqlen_q // plan.tiling.q)
    grid = shape.batch * shape.heads_q * q_tiles
    # The last tile reaches past the last row and key, and past the keys that a row beyond the last would see.
    longest = INT32_MAX - max(plan.tiling.q, plan.tiling.kv)
    for name, value, allowed in (
        ("batch * heads_q * ceil(seqlen_q / tile.q)", grid, INT32_MAX),
        ("seqlen_q", shape.seqlen_q, longest),
        ("seqlen_k", shape.seqlen_k, longest),
    ):
        if value > allowed:
            raise PlanError(f"{plan.spec.name}: {name} is {value:,}; allowed: up to {allowed:,}")
    heads_per_kv = shape.heads_q // shape.heads_kv if shape.heads_kv else 1
    scalars = Scalars(
        batch=shape.batch,
        heads_q=shape.heads_q,
        heads_per_kv=heads_per_kv,
        seqlen_q=shape.seqlen_q,
        seqlen_k=shape.seqlen_k,
        q_tiles=q_tiles,
        heads_in_l2=_heads_in_l2(plan, shape, heads_per_kv),
        scale_log2=scale * math.log2(math.e),
    )
    return Launch(grid, scalars)


def _heads_in_l2(plan: Plan, shape: Shape, heads_per_kv: int) -> int:
    """(batch, query head) pairs whose distinct K and V fill at most half of L2; whole groups of one K/V head.

    Half, because Q, O and the K and V of the next group pass through L2 as well. In-order grids finish a pair
    before the next one starts, and need no group.
    """
    if plan.tiling.scheduler == "in_order":
        return 1
    problem = plan.spec.problem
    kv_bytes = shape.seqlen_k * (problem.head_dim + problem.dim_v) * DTYPES[problem.dtype].bytes
    kv_heads = plan.device.l2_bytes // 2 // max(1, kv_bytes)
    return max(1, min(max(1, kv_heads) * heads_per_kv, shape.batch * shape.heads_q))
