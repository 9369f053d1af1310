"""The v1 family for the planner: Algorithms 1 and 4 of FlashAttention, a CTA for each head, on mma.sync.

The forward's blocks are those of the paper's rule (v1_budget.py), rounded down to multiples of 16: of what
the rule, shared memory and registers allow the planner takes the largest Bc, since what goes through HBM goes
with 1/Bc, then the largest Br. The backward has the same rule but more to hold: of the blocks that fit, all
smaller, the planner takes those that the engines model finds fastest. `schedule.tile` is the forward's; the
backward does not exceed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from fagen.errors import PlanError
from fagen.hw.arch import Arch
from fagen.hw.dtypes import DTYPES
from fagen.plan import symbols, v1_engines, v1_pipeline
from fagen.plan.budget import values
from fagen.plan.family import Family, choices, stacked
from fagen.plan.ir import Barrier, Buffer, Tiling
from fagen.plan.v1_budget import BACKWARD as BACKWARD_BUDGET
from fagen.plan.v1_budget import FORWARD as FORWARD_BUDGET
from fagen.plan.v1_budget import Rule, rule
from fagen.plan.v2 import pad16
from fagen.plan.v2_backward import STAGES, STATISTICS_BYTES, pad32, splits_evenly
from fagen.plan.v2_budget import MAX_WARPS
from fagen.spec.model import Spec
from fagen.spec.rules import ROWS_PER_WARP

MAX_TILE_KV = 256  # of schedule.tile.kv: S of more keys fits into no registers
WARPS = 8  # at most, where the planner chooses Br: two for each scheduler
# Of the backward: warps along the rows of Q, along those of K/V, and along the rows of dQ.
WARP_SPLITS = ((2, 4, 4), (2, 4, 2), (2, 2, 2), (2, 1, 2), (2, 1, 1), (1, 2, 1), (1, 1, 1))


def _forward_candidates(spec: Spec, arch: Arch) -> Iterator[Tiling]:
    """One, the first that fits; or all, where none does."""
    sizes = pad16(spec.problem.head_dim), pad16(spec.problem.dim_v), DTYPES[spec.problem.dtype].bytes
    waived = (FORWARD_BUDGET.registers,) if "spills" in spec.schedule.allow else ()
    refused = []
    for tiling in _forward_tilings(spec, rule(arch, *sizes)):
        accounts = FORWARD_BUDGET.accounts(tiling, values(tiling, *sizes, arch), arch)
        if all(account.fits or account.resource in waived for account in accounts):
            yield tiling
            return
        refused.append(tiling)
    if not refused:
        raise PlanError(
            f"{spec.name}: schedule.tile.q is {spec.schedule.tile.q}; allowed without roles.math.warps: what "
            f"up to {MAX_WARPS} warps split into {', '.join(map(str, ROWS_PER_WARP['v1']))} rows each"
        )
    yield from refused


def _forward_tilings(spec: Spec, by_rule: Rule) -> Iterator[Tiling]:
    """From the largest Bc and Br down."""
    tile, warps = spec.schedule.tile, spec.schedule.roles.math.warps
    most_warps = WARPS if tile.q is None else MAX_WARPS
    rows_q = _multiples(by_rule.q) if warps is None else [rows * warps for rows in ROWS_PER_WARP["v1"]]
    for kv, q, rows in product(
        choices(tile.kv, _multiples(min(by_rule.kv, MAX_TILE_KV))),
        choices(tile.q, rows_q),
        ROWS_PER_WARP["v1"],
    ):
        if q % rows == 0 and (q // rows <= most_warps if warps is None else q // rows == warps):
            yield _tiling(q, kv, q // rows)


def _backward_candidates(spec: Spec, arch: Arch) -> Iterator[Tiling]:
    tile, dim, dim_v = spec.schedule.tile, pad32(spec.problem.head_dim), pad32(spec.problem.dim_v)
    by_rule = rule(arch, dim, dim_v, DTYPES[spec.problem.dtype].bytes)
    for kv, q, split in product(
        _multiples(min(by_rule.kv, tile.kv or MAX_TILE_KV)),
        _multiples(min(by_rule.q, tile.q or by_rule.q)),
        WARP_SPLITS,
    ):
        if splits_evenly(q, kv, dim, dim_v, *split):
            warps_q, warps_kv, warps_dq = split
            tiling = _tiling(q, kv, warps_q * warps_kv)
            for stages in STAGES:
                yield replace(tiling, stages=stages, warps_q=warps_q, warps_dq=warps_dq)


def _multiples(most: int) -> range:
    """Multiples of 16 from the largest down; 16 at least."""
    return range(max(16, most // 16 * 16), 0, -16)


def _tiling(q: int, kv: int, warps: int) -> Tiling:
    return Tiling(
        q=q,
        kv=kv,
        warps=warps,
        stages=1,
        ctas_per_sm=1,
        q_operand="shared",
        lazy_rescale=None,
        scheduler="in_order",
    )


def _preference(tiling: Tiling) -> tuple[int, ...]:
    return (-tiling.kv, -tiling.q, -tiling.stages)


def _forward_buffers(tiling: Tiling, dim: int, dim_v: int, element_bytes: int) -> tuple[Buffer, ...]:
    tiles = (
        ("k", tiling.kv, dim, 1),
        ("v", tiling.kv, dim_v, 1),
        ("q", tiling.q, max(dim, dim_v), 1),  # then O
    )
    return stacked(tiles, element_bytes)


def _backward_buffers(tiling: Tiling, dim: int, dim_v: int, element_bytes: int) -> tuple[Buffer, ...]:
    tiles = stacked(
        (
            ("k", tiling.kv, dim, 1),
            ("v", tiling.kv, dim_v, 1),
            ("q", tiling.q, dim, tiling.stages),  # at the end dQ
            ("out", tiling.q, dim_v, 1),
            ("dout", tiling.q, dim_v, tiling.stages),
            ("p", tiling.q, tiling.kv, tiling.stages),
            ("ds", tiling.q, tiling.kv, tiling.stages),
        ),
        element_bytes,
    )
    end = tiles[-1].offset + tiles[-1].bytes
    return (*tiles, Buffer("stats", end, tiling.q, 2, 1, STATISTICS_BYTES * tiling.q))


def _forward_barriers(tiling: Tiling) -> tuple[Barrier, ...]:
    return ()


def _backward_barriers(tiling: Tiling) -> tuple[Barrier, ...]:
    return (
        Barrier("full", tiling.stages, "Q and dO have arrived"),
        Barrier("meeting", 1, "D is there, and Q and dO of the step before are used up"),
    )


FORWARD = Family(
    keys=("tile.q", "tile.kv", "roles.math.warps"),
    sizes=("tile.q", "tile.kv", "roles.math.warps"),
    symbols=symbols.MEANINGS["v1"],
    pad=pad16,
    padding=symbols.PADDING["v2"],
    candidates=_forward_candidates,
    budget=FORWARD_BUDGET,
    predict=v1_engines.predict_forward,
    preference=_preference,
    buffers=_forward_buffers,
    barriers=_forward_barriers,
    pipeline=v1_pipeline.forward,
)

BACKWARD = Family(
    keys=("tile.q", "tile.kv"),
    sizes=("tile.q", "tile.kv"),
    symbols=symbols.MEANINGS["v1 backward"],
    pad=pad32,
    padding=symbols.PADDING["v2 backward"],
    candidates=_backward_candidates,
    budget=BACKWARD_BUDGET,
    predict=v1_engines.predict_backward,
    preference=_preference,
    buffers=_backward_buffers,
    barriers=_backward_barriers,
    pipeline=v1_pipeline.backward,
)
