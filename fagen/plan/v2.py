"""The v2 family for the planner: every warp loads, multiplies and takes its rows' softmax, on mma.sync."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from fagen.errors import PlanError
from fagen.hw.arch import Arch
from fagen.plan import symbols, v2_engines, v2_pipeline
from fagen.plan.family import Family, choices, polynomial, rescale, stacked
from fagen.plan.ir import Barrier, Buffer, Tiling
from fagen.plan.v2_budget import BUDGET, MAX_WARPS
from fagen.spec.model import Lazy, Spec

TILE_Q = (64, 128, 192, 256)
TILE_KV = (32, 48, 64, 96, 128)
ROWS_PER_WARP = (16, 32)  # one or two m16 tiles
STAGES = (2, 3, 4)
CTAS_PER_SM = (1, 2, 3, 4)
Q_OPERANDS = ("shared", "registers")
RESCALE = Lazy(lazy=8)  # FlashAttention-4's tau: a factor of 256 is far from overflowing fp32 or 16-bit P


def pad16(columns: int) -> int:
    """Columns rounded up to what one mma k-step takes."""
    return -(-columns // 16) * 16


def _candidates(spec: Spec, arch: Arch) -> Iterator[Tiling]:
    schedule = spec.schedule
    splits = _row_splits(schedule.tile.q, schedule.roles.math.warps)
    if not splits:
        raise PlanError(
            f"{spec.name}: schedule.tile.q is {schedule.tile.q}; allowed without roles.math.warps: "
            f"what up to {MAX_WARPS} warps split into {' or '.join(map(str, ROWS_PER_WARP))} rows each"
        )
    lazy, _ = rescale(schedule, RESCALE)
    for (q, warps), kv, stages, ctas, q_operand in product(
        splits,
        choices(schedule.tile.kv, TILE_KV),
        choices(schedule.stages.kv, STAGES),
        choices(schedule.ctas_per_sm, CTAS_PER_SM),
        choices(schedule.q_operand, Q_OPERANDS),
    ):
        yield Tiling(
            q=q,
            kv=kv,
            warps=warps,
            stages=stages,
            ctas_per_sm=ctas,
            q_operand=q_operand,
            lazy_rescale=lazy,
            scheduler=schedule.scheduler or _scheduler(spec),
            polynomial=polynomial(schedule),
            softcap=spec.problem.softcap is not None,
            dropout=spec.problem.dropout,
        )


def _row_splits(q: int | None, warps: int | None) -> list[tuple[int, int]]:
    """(tile.q, warps) pairs; a pair that the spec gives whole is taken as it is."""
    if q is not None and warps is not None:
        return [(q, warps)]
    if warps is not None:
        return [(rows * warps, warps) for rows in ROWS_PER_WARP]
    return [
        (rows_q, rows_q // rows)
        for rows_q in choices(q, TILE_Q)
        for rows in ROWS_PER_WARP
        if rows_q % rows == 0 and rows_q // rows <= MAX_WARPS
    ]


def _scheduler(spec: Spec) -> str:
    return "in_order" if spec.problem.window == (None, None) else "longest_first"


def _preference(tiling: Tiling) -> tuple[int, ...]:
    """Small query tiles (more CTAs to balance), wide key tiles, few stages, Q shared."""
    return (
        tiling.q,
        -tiling.kv,
        tiling.stages,
        tiling.ctas_per_sm,
        tiling.warps,
        Q_OPERANDS.index(tiling.q_operand),
    )


def _buffers(tiling: Tiling, dim: int, dim_v: int, element_bytes: int) -> tuple[Buffer, ...]:
    tiles = (
        ("q", tiling.q, max(dim, dim_v), 1),
        ("k", tiling.kv, dim, tiling.stages),
        ("v", tiling.kv, dim_v, tiling.stages),
    )
    return stacked(tiles, element_bytes)


def _barriers(tiling: Tiling) -> tuple[Barrier, ...]:
    return (
        Barrier("full", tiling.stages, "K or V has arrived"),
        Barrier("empty", tiling.stages, "every warp is done with it"),
    )


FAMILY = Family(
    keys=(
        "tile.q",
        "tile.kv",
        "stages.kv",
        "roles.math.warps",
        "q_operand",
        "ctas_per_sm",
        "softmax.exp2",
        "softmax.rescale",
        "scheduler",
    ),
    sizes=("tile.q", "tile.kv", "roles.math.warps", "stages.kv", "ctas_per_sm", "q_operand"),
    symbols=symbols.MEANINGS["v2"],
    pad=pad16,
    padding=symbols.PADDING["v2"],
    candidates=_candidates,
    budget=BUDGET,
    predict=v2_engines.predict,
    preference=_preference,
    buffers=_buffers,
    barriers=_barriers,
    pipeline=v2_pipeline.forward,
)
