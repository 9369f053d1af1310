"""What the models predict for one shape: FLOP, time and speed of the forward."""

from __future__ import annotations

from dataclasses import dataclass

from fagen.plan import io
from fagen.plan.causal import Blocks
from fagen.plan.formulas import formula
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
    heads = shape.batch * shape.heads_q
    slots = plan.device.sms * tiling.ctas_per_sm
    blocks = Blocks(shape.seqlen_q, shape.seqlen_k, tiling.q, tiling.kv)  # of one head
    longest = blocks.along_kv if shape.seqlen_q else 0  # the last Q block sees every key
    if problem.mask == "causal":
        steps = max(longest, heads * blocks.left / slots)
    else:
        steps = -(-heads * blocks.along_q // slots) * longest

    # A slot gets an equal share of its device's speed.
    compute = steps * plan.engines.tile_flops * slots / (plan.engines.tflops * 1e12)
    moved = io.evaluate(formula("v2", "forward", "HBM"), io.setting(plan, shape))
    hbm = moved / plan.device.hbm_bytes_per_s
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
