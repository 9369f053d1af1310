"""The backward of v2 and v3 for the planner: a CTA per K/V tile, dK and dV in registers, on mma.sync.

Heads are padded to multiples of 32 columns, so that two warps along Q can share the columns of dK, dV and dQ.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from fagen.errors import PlanError
from fagen.hw.arch import Arch
from fagen.plan import symbols, v2_backward_engines, v2_pipeline
from fagen.plan.family import Family, choices, stacked
from fagen.plan.ir import Barrier, Buffer, Tiling
from fagen.plan.v2_backward_budget import BUDGET
from fagen.plan.v2_budget import MAX_WARPS
from fagen.spec.model import Spec

TILE_Q = (32, 64, 128)
TILE_KV = (32, 64, 128)  # ptxas spills with 96
WARPS = (4, 8)
WARPS_Q = (1, 2, 4)
WARPS_DQ = (1, 2, 4, 8)
STAGES = (2, 1)
DS_STAGES = (2, 1)
CTAS_PER_SM = (1, 2)
STATISTICS_BYTES = 8  # LSE and delta of a row


def pad32(columns: int) -> int:
    """Columns rounded up to two mma k-steps."""
    return -(-columns // 32) * 32


def _candidates(spec: Spec, arch: Arch) -> Iterator[Tiling]:
    backward = spec.schedule.backward
    dim, dim_v = pad32(spec.problem.head_dim), pad32(spec.problem.dim_v)
    splits = [
        (q, kv, split)
        for split in _warp_splits(spec)
        for q, kv in product(choices(backward.tile.q, TILE_Q), choices(backward.tile.kv, TILE_KV))
        if splits_evenly(q, kv, dim, dim_v, *split)
    ]
    if not splits:
        raise PlanError(
            f"{spec.name}: schedule.backward does not split evenly, with tile.q {backward.tile.q}, tile.kv "
            f"{backward.tile.kv}, warps.q {backward.warps.q}, warps.kv {backward.warps.kv}, warps.dq "
            f"{backward.warps.dq} (None: any) and {dim} and {dim_v} columns; allowed: multiples of 16 rows "
            f"and columns for each warp, at most {MAX_WARPS} warps"
        )
    for (q, kv, (warps_q, warps_kv, warps_dq)), stages, ds_stages, ctas in product(
        splits,
        choices(backward.stages.q, STAGES),
        choices(backward.stages.ds, DS_STAGES),
        choices(backward.ctas_per_sm, CTAS_PER_SM),
    ):
        yield Tiling(
            q=q,
            kv=kv,
            warps=warps_q * warps_kv,
            stages=stages,
            ctas_per_sm=ctas,
            q_operand="shared",
            lazy_rescale=None,
            scheduler=backward.scheduler or _scheduler(spec),
            warps_q=warps_q,
            warps_dq=warps_dq,
            ds_stages=ds_stages,
            softcap=spec.problem.softcap is not None,
            dropout=spec.problem.dropout,
        )


def _warp_splits(spec: Spec) -> Iterator[tuple[int, int, int]]:
    """(warps.q, warps.kv, warps.dq) triples: what the spec gives, and what the planner may add."""
    given = spec.schedule.backward.warps
    for warps_q in choices(given.q, WARPS_Q):
        along_kv = [warps // warps_q for warps in WARPS if warps % warps_q == 0] or [1]
        for warps_kv, warps_dq in product(choices(given.kv, along_kv), choices(given.dq, WARPS_DQ)):
            yield warps_q, warps_kv, warps_dq


def splits_evenly(q: int, kv: int, dim: int, dim_v: int, warps_q: int, warps_kv: int, warps_dq: int) -> bool:
    """Whether every warp has whole 16 x 16 blocks of every product."""
    warps = warps_q * warps_kv
    if warps > MAX_WARPS or warps % warps_dq:
        return False
    rows = (q, 16 * warps_q), (kv, 16 * warps_kv), (q, 16 * warps_dq)
    columns = (dim, 16 * warps_q), (dim_v, 16 * warps_q), (dim, 16 * warps // warps_dq)
    return all(size % step == 0 for size, step in (*rows, *columns))


def _scheduler(spec: Spec) -> str:
    """Deterministic K/V tiles take turns, which pairs of heads side by side leave more time for."""
    is_even = spec.problem.window == (None, None) and not spec.problem.deterministic
    return "in_order" if is_even else "longest_first"


def _preference(tiling: Tiling) -> tuple[int, ...]:
    """Long K/V tiles, as what Q, dO and dQ move goes with their number; two of each other tile."""
    return (
        -tiling.kv,
        -tiling.stages,
        -tiling.ds_stages,
        tiling.q,
        tiling.ctas_per_sm,
        tiling.warps_q,
        abs(tiling.warps_dq**2 - tiling.warps),  # squares of dQ to each warp
    )


def _buffers(tiling: Tiling, dim: int, dim_v: int, element_bytes: int) -> tuple[Buffer, ...]:
    tiles = stacked(
        (
            ("k", tiling.kv, dim, 1),
            ("v", tiling.kv, dim_v, 1),
            ("q", tiling.q, dim, tiling.stages),
            ("dout", tiling.q, dim_v, tiling.stages),
            ("p", tiling.q, tiling.kv, tiling.ds_stages),
            ("ds", tiling.q, tiling.kv, tiling.ds_stages),
        ),
        element_bytes,
    )
    end = tiles[-1].offset + tiles[-1].bytes
    statistics = STATISTICS_BYTES * tiling.q * tiling.stages
    return (*tiles, Buffer("stats", end, tiling.q, 2, tiling.stages, statistics))


def _barriers(tiling: Tiling) -> tuple[Barrier, ...]:
    return (Barrier("full", tiling.stages, "Q, dO and their rows' statistics have arrived"),)


FAMILY = Family(
    keys=(
        "backward.tile.q",
        "backward.tile.kv",
        "backward.stages.q",
        "backward.stages.ds",
        "backward.warps.q",
        "backward.warps.kv",
        "backward.warps.dq",
        "backward.ctas_per_sm",
        "backward.scheduler",
    ),
    sizes=(
        "backward.tile.q",
        "backward.tile.kv",
        "backward.warps.q",
        "backward.warps.kv",
        "backward.warps.dq",
        "backward.stages.q",
        "backward.stages.ds",
        "backward.ctas_per_sm",
    ),
    symbols=symbols.MEANINGS["v2 backward"],
    pad=pad32,
    padding=symbols.PADDING["v2 backward"],
    candidates=_candidates,
    budget=BUDGET,
    predict=v2_backward_engines.predict,
    preference=_preference,
    buffers=_buffers,
    barriers=_barriers,
    pipeline=v2_pipeline.backward,
)
