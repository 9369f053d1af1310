"""The launch of a planned forward on one shape: grid and scalar parameters. Plain integers, no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fagen.errors import PlanError
from fagen.plan.ir import Plan
from fagen.spec.model import Problem

ABREAST = 4  # (sequence, head) pairs: measured, docs/performance.md
DETERMINISTIC_ABREAST = 16  # of a backward whose K/V tiles take turns: measured, likewise
PACKABLE = (1, 2, 4, 8, 16, 32, 64)  # query heads: they split a warpgroup's rows into whole queries
INT32_MAX = 2**31 - 1  # largest grid in x, and what the kernel's int32 parameters hold


@dataclass(frozen=True)
class Shape:
    """Sizes of one call; heads_q is a multiple of heads_kv."""

    batch: int  # sequences
    seqlen_q: int  # packed sequences: of the longest
    seqlen_k: int
    heads_q: int
    heads_kv: int
    tokens_q: int | None = None  # packed sequences: rows of q in all; None: each sequence has seqlen_q
    tokens_k: int | None = None

    @property
    def rows_q(self) -> int:
        """Rows of q, of all sequences."""
        return self.batch * self.seqlen_q if self.tokens_q is None else self.tokens_q

    @property
    def rows_k(self) -> int:
        """Rows of k and v, of all sequences."""
        return self.batch * self.seqlen_k if self.tokens_k is None else self.tokens_k

    def __str__(self) -> str:
        """As the command line spells it: B,Sq,Sk,Hq,Hkv."""
        return f"{self.batch},{self.seqlen_q},{self.seqlen_k},{self.heads_q},{self.heads_kv}"


class Scalars(NamedTuple):
    """The numbers among the parameters of a pass's kernels but for strides; see `params.py`."""

    batch: int
    heads_q: int  # with pack_gqa: K/V heads, so heads_per_kv is 1
    heads_kv: int
    heads_per_kv: int
    seqlen_q: int
    seqlen_k: int
    q_tiles: int
    heads_abreast: int
    group_log2: int  # with pack_gqa: of the query heads that share a K/V head; else 0
    scale: float
    scale_log2: float
    softcap_scale: float
    dropout_threshold: int
    dropout_rescale: float
    tokens_q: int
    tokens_k: int
    kv_tiles: int = 0  # backward
    head_tiles: int = 0  # backward: Q tiles of one head in the workspaces


@dataclass(frozen=True)
class Grid:
    """CTAs of the 1-D grid, and those of a cluster. A grid of 0 is not launched."""

    grid: int
    cluster: int


@dataclass(frozen=True)
class Launch(Grid):
    """The grid of an attention kernel, and its scalars.

    Where the grid is 0, out is 0 and LSE -inf, if they have elements at all.
    """

    scalars: Scalars


def launch(plan: Plan, shape: Shape, scale: float, sms: int | None = None, dropout_p: float = 0.0) -> Launch:
    """The launch for softmax scale `scale` on a GPU with `sms` SMs, those of the plan's device if left out.

    A cluster (v2: a CTA) per work item, i.e. per sequence, head and Q tiles, one for each CTA; v1: a CTA per
    sequence and head. Persistent clusters are at most as many as fill the SMs, and share out the items.
    Raises PlanError if the grid or a size is beyond what the kernel's 32-bit integers hold, or if with
    `pack_gqa` other than PACKABLE numbers of query heads share a K/V head.
    """
    tiling, sms = plan.tiling, plan.device.sms if sms is None else sms
    heads_per_kv = shape.heads_q // shape.heads_kv if shape.heads_q and shape.heads_kv else 1
    group = heads_per_kv if tiling.pack_gqa else 1
    if group not in PACKABLE:
        raise PlanError(
            f"{plan.spec.name}: {group} query heads share a K/V head; allowed with schedule.pack_gqa: true: "
            f"{', '.join(map(str, PACKABLE))}"
        )
    heads = shape.heads_q // group
    q_tiles = -(-shape.seqlen_q // (queries_per_tile(plan, heads_per_kv) * tiling.cluster))
    items = shape.batch * heads * (min(q_tiles, 1) if plan.spec.family == "v1" else q_tiles)
    check_sizes(plan, shape, {"batch * heads_q * ceil(seqlen_q / tile.q)": items * tiling.cluster})

    scalars = Scalars(
        batch=shape.batch,
        heads_q=heads,
        heads_kv=shape.heads_kv,
        heads_per_kv=heads_per_kv // group,
        seqlen_q=shape.seqlen_q,
        seqlen_k=shape.seqlen_k,
        q_tiles=q_tiles,
        heads_abreast=heads_abreast(
            plan, shape.batch * heads, q_tiles, heads // shape.heads_kv if shape.heads_kv else 1, sms
        ),
        group_log2=group.bit_length() - 1,
        **factors(plan.spec.problem, scale, dropout_p),
        tokens_q=shape.rows_q,
        tokens_k=shape.rows_k,
    )
    if plan.spec.family == "v3" and not (shape.seqlen_k and shape.rows_q and shape.rows_k):
        items = 0  # there are no tensor maps of empty tensors
    if tiling.scheduler.startswith("persistent"):
        items = min(items, sms // tiling.cluster)
    return Launch(items * tiling.cluster, tiling.cluster, scalars)


def factors(problem: Problem, scale: float, dropout_p: float) -> dict[str, Any]:
    """The `Scalars` that scores and probabilities are multiplied by or compared with."""
    cap = problem.softcap
    return {
        "scale": scale,
        "scale_log2": (scale if cap is None else cap) * math.log2(math.e),
        "softcap_scale": 0.0 if cap is None else 2 * math.log2(math.e) * scale / cap,
        "dropout_threshold": min(round(dropout_p * 2**16), 2**16 - 1),
        "dropout_rescale": 1 / (1 - dropout_p),
    }


def queries_per_tile(plan: Plan, heads_per_kv: int) -> int:
    """Queries of one sequence in a Q tile; with `pack_gqa` each has a row per query head of the K/V head."""
    return plan.tiling.q // heads_per_kv if plan.tiling.pack_gqa else plan.tiling.q


def check_sizes(plan: Plan, shape: Shape, grids: Mapping[str, int]) -> None:
    """Raise PlanError for a grid, named by its formula, or a size beyond the kernels' 32-bit integers."""
    # The last tile reaches past the last row and key, and past the keys that a row beyond the last would see.
    # A window's side is added to such a row.
    sides = [side for side in plan.spec.problem.window if side is not None]
    longest = INT32_MAX - max(plan.tiling.q * plan.tiling.cluster, plan.tiling.kv) - max(sides, default=0)
    for name, value, allowed in (
        *((name, grid, INT32_MAX) for name, grid in grids.items()),
        ("seqlen_q", shape.seqlen_q, longest),
        ("seqlen_k", shape.seqlen_k, longest),
        ("tokens_q", shape.tokens_q or 0, longest),
        ("tokens_k", shape.tokens_k or 0, longest),
    ):
        if value > allowed:
            raise PlanError(f"{plan.spec.name}: {name} is {value:,}; allowed: up to {allowed:,}")


def heads_abreast(plan: Plan, pairs: int, tiles: int, share: int, sms: int) -> int:
    """(sequence, head) pairs, of `tiles` each, that `longest_first` runs side by side.

    The forward has as many as have two tiles for every SM in the three quarters of tiles that are not left
    to the end, and at least ABREAST; the backward, as fast with any, ABREAST, or DETERMINISTIC_ABREAST. All
    in whole groups of the `share` heads that read the same K and V. Other orders finish a pair before the
    next one starts.
    """
    if not plan.tiling.longest_first or not tiles:
        return 1
    wanted = ABREAST
    if plan.direction == "forward":
        wanted = max(wanted, -(-2 * sms // (tiles - tiles // 4)))
    elif plan.spec.problem.deterministic:
        wanted = DETERMINISTIC_ABREAST
    group = max(1, share)
    return max(1, min(-(-wanted // group) * group, pairs))
