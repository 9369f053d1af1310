"""What the models predict for one shape: FLOP, time and speed of a pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapreplace

from fagen.hw.dtypes import DTYPES
from fagen.plan import io
from fagen.plan.blocks import Blocks
from fagen.plan.engines import HBM
from fagen.plan.formulas import formula
from fagen.plan.ir import Plan
from fagen.plan.launch import Scalars, Shape, launch, queries_per_tile
from fagen.plan.order import longest_first
from fagen.plan.timeline import LINEAR, Timeline, item_cycles, start_cycles, timeline
from fagen.plan.timeline_kernel import kernel
from fagen.plan.workspaces import workspaces

LAUNCH_SECONDS = 4e-6  # from one v3 kernel to the next
COUNTED = 50_000  # work items that are handed out one by one; more than that even out


@dataclass(frozen=True)
class Prediction:
    """A pass on one shape: FLOP of the visible (query, key) pairs, seconds, and what bounds them."""

    flops: int
    seconds: float
    bound: str  # an engine, or "HBM"

    @property
    def tflops(self) -> float:
        """TFLOP/s, visible pairs only; 0 where nothing is computed."""
        return self.flops / self.seconds / 1e12 if self.seconds else 0.0


def predict(plan: Plan, shape: Shape) -> Prediction:
    """Time of the pass on the plan's device, by the family's model, or of what it moves through HBM."""
    by_timeline = plan.spec.family == "v3" and plan.direction == "forward"
    seconds, bound = _v3(plan, shape) if by_timeline else _by_engines(plan, shape)
    moved = io.evaluate(formula(io.algorithm(plan), plan.direction, "HBM"), io.setting(plan, shape))
    hbm = moved / plan.device.hbm_bytes_per_s
    return Prediction(flops(plan, shape), max(seconds, hbm), bound if seconds >= hbm else HBM)


def flops(plan: Plan, shape: Shape) -> int:
    """FLOP of the matrix products, for each visible (query, key) pair.

    2*(d + dv) in the forward; 2*(3*d + 2*dv) in the backward, whose products are S, dP, dV, dK and dQ.
    """
    problem = plan.spec.problem
    d, dv = problem.head_dim, problem.dim_v
    pairs = Blocks(shape.seqlen_q, shape.seqlen_k, 1, 1, problem.window).left
    products = d + dv if plan.direction == "forward" else 3 * d + 2 * dv
    return 2 * shape.batch * shape.heads_q * pairs * products


def _by_engines(plan: Plan, shape: Shape) -> tuple[float, str]:
    """Seconds and bound: the engines model's tile time over the CTAs' tiles, and the kernels around it.

    Without a mask all CTAs take equally long, so whole waves of them run. Under a mask they differ, and the
    longest of them, or the work of all shared out evenly, bounds the time. The latency of a launch is not in
    it.
    """
    tiling, window = plan.tiling, plan.spec.problem.window
    slots = plan.device.sms * tiling.ctas_per_sm
    blocks = Blocks(shape.seqlen_q, shape.seqlen_k, tiling.q, tiling.kv, window)  # of one query head
    heads, visits = shape.batch * shape.heads_q, 1  # a CTA's, and its visits to each of its blocks
    if plan.direction == "backward":
        heads, visits = shape.batch * shape.heads_kv, shape.heads_q // max(1, shape.heads_kv)
        blocks = blocks.transposed
    if plan.spec.family == "v1":
        steps = -(-heads // slots) * visits * blocks.left
    elif window == (None, None):
        steps = -(-heads * blocks.along_q // slots) * visits * _longest(blocks)
    else:
        steps = visits * max(_longest(blocks), heads * blocks.left / slots)
    # A slot gets an equal share of its device's speed.
    seconds = steps * plan.engines.tile_flops * slots / (plan.engines.tflops * 1e12)
    return seconds + _around(plan, shape) / plan.device.hbm_bytes_per_s, plan.engines.bound.engine


def _around(plan: Plan, shape: Shape) -> int:
    """Bytes that the kernels before and after v2's backward move: those of O and dO, dQ and its sum."""
    if plan.direction == "forward" or plan.spec.family == "v1":
        return 0
    problem, sizes = plan.spec.problem, workspaces(plan, shape)
    element = DTYPES[problem.dtype].bytes
    rows = shape.rows_q * shape.heads_q
    return rows * (2 * problem.dim_v + problem.head_dim) * element + 2 * sizes["dq_sum"] + sizes["row_stats"]


def _longest(blocks: Blocks) -> int:
    """K/V blocks of the Q block that sees the most, to within one: the last, the first or one between."""
    if not blocks.along_q:
        return 0
    last = blocks.along_q - 1
    return max(blocks.of(i) for i in (0, last // 2, last))


def _v3(plan: Plan, shape: Shape) -> tuple[float, str]:
    """Seconds and bound: the timeline's cycles of the SM with the longest list of items, and a launch."""
    launched = launch(plan, shape, scale=1.0)
    on_sm = kernel(plan)
    if not launched.grid:
        return 0.0, plan.engines.bound.engine
    scalars, blocks = launched.scalars, _item_blocks(plan, shape)
    items = shape.batch * scalars.heads_q * blocks.along_q
    slots = plan.device.sms // plan.tiling.cluster  # each for one item at a time
    mean = _mean_tiles(blocks)
    if items <= COUNTED:
        cost = [item_cycles(on_sm, max(1, blocks.of(i))) for i in range(blocks.along_q)]
        costs = [cost[i] for i in _q_tiles(plan, scalars)]
        cycles = _in_rounds(costs, slots) if plan.tiling.scheduler == "persistent" else _queued(costs, slots)
    else:
        cycles = items / slots * item_cycles(on_sm, mean)
    cycles += start_cycles(on_sm, mean)
    seconds = cycles / on_sm.clock_hz + LAUNCH_SECONDS
    return seconds, typical_timeline(plan, shape).bound


def typical_timeline(plan: Plan, shape: Shape) -> Timeline:
    """The run of a v3 plan whose work items have about as many tiles as those of a shape, up to LINEAR."""
    return timeline(kernel(plan), min(_mean_tiles(_item_blocks(plan, shape)), LINEAR))


def _item_blocks(plan: Plan, shape: Shape) -> Blocks:
    """The blocks of one head as a v3 work item has them: the Q tiles of a cluster see the same K/V tiles."""
    tiling = plan.tiling
    queries = queries_per_tile(plan, shape.heads_q // shape.heads_kv) * tiling.cluster
    return Blocks(shape.seqlen_q, shape.seqlen_k, queries, tiling.kv, plan.spec.problem.window)


def _mean_tiles(blocks: Blocks) -> int:
    """K/V tiles of a typical work item: at least 1, as every item has."""
    return max(1, round(blocks.left / max(1, blocks.along_q)))


def _q_tiles(plan: Plan, scalars: Scalars) -> Iterator[int]:
    """The Q tile of each work item, in the order of templates/include/fagen/sched."""
    heads, tiles = scalars.batch * scalars.heads_q, range(scalars.q_tiles)
    if not plan.tiling.longest_first:
        for _ in range(heads):
            yield from tiles
        return
    yield from (tile for _, tile in longest_first(heads, scalars.q_tiles, scalars.heads_abreast))


def _in_rounds(costs: Sequence[float], slots: int) -> float:
    """The longest slot where each round hands out an item per slot, forwards and backwards in turns."""
    busy = [0.0] * slots
    for number, first in enumerate(range(0, len(costs), slots)):
        for place, cost in enumerate(costs[first : first + slots]):
            busy[place if number % 2 == 0 else -1 - place] += cost
    return max(busy)


def _queued(costs: Sequence[float], slots: int) -> float:
    """The last end where the slot that is free first gets the next item."""
    ends = [0.0] * slots
    for cost in costs:
        heapreplace(ends, ends[0] + cost)
    return max(ends)
