"""What the models predict for one shape: FLOP, time and speed of the forward."""

from __future__ import annotations

from dataclasses import dataclass

from fagen.plan import io
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape


@dataclass(frozen=True)
class Prediction:
    """The forward of one shape: FLOP of the visible (query, key) pairs, seconds, and what bounds them."""

    flops: int
    seconds: float
    bound: str  # an engine, or "HBM"

    @property
    def tflops(self) -> float:
        """TFLOP/s, visible pairs only; 0 where nothing is computed."""
        return self.flops / self.seconds / 1e12 if self.seconds else 0.0


def predict(plan: Plan, shape: Shape) -> Prediction:
    """Time of the forward on the plan's device: the engines model's tile time over the CTAs' tiles, or HBM.

    Without a mask all CTAs take equally long, so whole waves of them run. Under a causal mask they differ,
    and the longest of them, or the work of all shared out evenly, bounds the time. The latency of a launch is
    not in it.
    """
    problem, tiling = plan.spec.problem, plan.tiling
    causal = problem.mask == "causal"
    heads = shape.batch * shape.heads_q
    slots = plan.device.sms * tiling.ctas_per_sm
    tiles = [  # per Q block of one head
        -(-_visible(min(row + tiling.q, shape.seqlen_q), causal, shape) // tiling.kv)
        for row in range(0, shape.seqlen_q, tiling.q)
    ]
    longest = max(tiles, default=0)
    steps = max(longest, heads * sum(tiles) / slots) if causal else -(-heads * len(tiles) // slots) * longest

    # A slot gets an equal share of its device's speed.
    compute = steps * plan.engines.tile_flops * slots / (plan.engines.tflops * 1e12)
    hbm = (
        io.evaluate(io.formula("v2", "forward", "HBM"), io.setting(plan, shape)) / plan.device.hbm_bytes_per_s
    )
    bound = plan.engines.bound.engine if compute >= hbm else "HBM"
    return Prediction(forward_flops(plan, shape), max(compute, hbm), bound)


def forward_flops(plan: Plan, shape: Shape) -> int:
    """FLOP of both matrix products: 2*(d + dv) for each visible (query, key) pair."""
    problem = plan.spec.problem
    pairs = shape.seqlen_q * shape.seqlen_k
    if problem.mask == "causal":  # the last min(S_q, S_k) queries see S_k, S_k - 1, ... keys, the others none
        rows = min(shape.seqlen_q, shape.seqlen_k)
        pairs = rows * (2 * shape.seqlen_k - rows + 1) // 2
    return 2 * shape.batch * shape.heads_q * pairs * (problem.head_dim + problem.dim_v)


def _visible(rows: int, causal: bool, shape: Shape) -> int:
    """Keys that the first `rows` queries see."""
    return max(rows + shape.seqlen_k - shape.seqlen_q, 0) if causal else shape.seqlen_k
