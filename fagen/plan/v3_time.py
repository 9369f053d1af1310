"""Seconds of v3's forward: the timeline's cycles of its work items, handed out to the SMs."""

from __future__ import annotations

from math import ceil

from fagen.hw.dtypes import DTYPES
from fagen.plan import work_items
from fagen.plan.blocks import Blocks
from fagen.plan.efficiency import V3_FORWARD, Wgmma
from fagen.plan.io import lost
from fagen.plan.ir import Plan
from fagen.plan.l2_walk import HELD
from fagen.plan.launch import Launch, Shape, launch, queries_per_tile
from fagen.plan.timeline import KNOTS, LINEAR, Timeline, item_cycles, pace, start_cycles, timeline
from fagen.plan.timeline_kernel import kernel

HANDED_OUT = {  # by schedule.scheduler
    "in_order": work_items.as_freed,
    "longest_first": work_items.as_freed,
    "persistent": work_items.in_rounds,
    "persistent_lpt": work_items.asked_ahead,
}


def seconds(plan: Plan, shape: Shape, costs: Wgmma) -> tuple[float, str]:
    """Seconds but for the launch, and bound: the SM with the longest list of items, and what L2 has lost."""
    launched = launch(plan, shape, scale=1.0)
    if not launched.grid:
        return 0.0, plan.engines.bound.engine
    on_sm, blocks, tiling = kernel(plan, costs), _item_blocks(plan, shape), plan.tiling
    mean, item = _mean_tiles(blocks), item_cycles(on_sm)
    cycles = work_items.busy(
        lambda tile: item(max(1, blocks.of(tile))),
        tiles=blocks.along_q,
        pairs=shape.batch * launched.scalars.heads_q,
        abreast=launched.scalars.heads_abreast if tiling.longest_first else None,
        slots=plan.device.sms // tiling.cluster,  # each for one item at a time
        hand_out=HANDED_OUT[tiling.scheduler],
    )
    cycles += start_cycles(on_sm, mean)
    late = costs.late * _read_again(plan, shape, launched, blocks) / plan.device.hbm_bytes_per_s
    return cycles / on_sm.clock_hz + late, pace(on_sm, min(k for k in KNOTS if k >= min(mean, LINEAR))).bound


def typical_timeline(plan: Plan, shape: Shape) -> Timeline:
    """The run of a v3 plan whose work items have about as many tiles as those of a shape, up to LINEAR."""
    return timeline(kernel(plan, V3_FORWARD), min(_mean_tiles(_item_blocks(plan, shape)), LINEAR))


def _item_blocks(plan: Plan, shape: Shape) -> Blocks:
    """The blocks of one head as a v3 work item has them: the Q tiles of a cluster see the same K/V tiles."""
    tiling = plan.tiling
    queries = queries_per_tile(plan, shape.heads_q // shape.heads_kv) * tiling.cluster
    return Blocks(shape.seqlen_q, shape.seqlen_k, queries, tiling.kv, plan.spec.problem.window)


def _mean_tiles(blocks: Blocks) -> int:
    """K/V tiles of a typical work item: at least 1, as every item has."""
    return max(1, round(blocks.left / max(1, blocks.along_q)))


def _read_again(plan: Plan, shape: Shape, launched: Launch, blocks: Blocks) -> float:
    """Bytes of K and V that longest-first order fetches from HBM although L2 has had them, about.

    Pairs side by side lose what L2 does not hold at each wave of CTAs. The shortest quarter of the tiles
    comes last, for all pairs: tile after tile it goes over the keys that it sees of every pair. (l2_walk.py
    counts it step by step, and takes its time.)
    """
    last = blocks.along_q // 4
    if not plan.tiling.longest_first or not last:
        return 0.0
    problem, held = plan.spec.problem, HELD * plan.device.l2_bytes
    row = (problem.head_dim + problem.dim_v) * DTYPES[problem.dtype].bytes
    whole = shape.batch * shape.heads_kv * shape.seqlen_k * row
    seen = [blocks.of(tile) / max(1, blocks.along_kv) for tile in range(last)]
    most = max(seen) * whole
    if whole <= held or not most:
        return 0.0
    pairs, abreast = shape.batch * launched.scalars.heads_q, launched.scalars.heads_abreast
    slots = plan.device.sms / plan.tiling.cluster
    waves = abreast * (blocks.along_q - last) / slots
    beside = lost(whole * abreast / pairs / held) * max(0.0, waves - 1) * whole
    walks = 1 if most <= held else sum(seen) / max(seen)
    return beside + most * ceil(walks * min(1.0, pairs / slots))
