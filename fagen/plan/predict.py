"""What the models predict for one shape: FLOP, time and speed of a pass."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fagen.plan import io, mma_sync_time, v3_time
from fagen.plan.blocks import Blocks
from fagen.plan.efficiency import SHIPPED, Efficiencies, MmaSync, pass_name
from fagen.plan.engines import HBM
from fagen.plan.formulas import formula
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape


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


def predict(plan: Plan, shape: Shape, efficiencies: Efficiencies | None = None) -> Prediction:
    """Time of a call on the plan's device, by the family's model, or of what it moves through HBM.

    L2 is taken to be full of what others wrote, as it is between other kernels: that goes out first.
    `efficiencies` are a calibrated device's, by `pass_name`; passes that it lacks have the shipped ones.
    """
    name = pass_name(plan)
    costs = (efficiencies or {}).get(name, SHIPPED[name])
    if isinstance(costs, MmaSync):
        seconds, bound = mma_sync_time.seconds(plan, shape, costs)
    else:
        seconds, bound = v3_time.seconds(plan, shape, costs)
    if not seconds:
        return Prediction(0, 0.0, bound)  # nothing is launched
    # Walks in longest-first order are not counted here: that takes long, and HBM does not bound them.
    at = replace(io.setting(plan, shape), longest_first=False)
    moved = io.evaluate(formula(io.algorithm(plan), plan.direction, "HBM"), at)
    hbm = (moved + min(moved, plan.device.l2_bytes)) / plan.device.hbm_bytes_per_s
    return Prediction(flops(plan, shape), max(seconds, hbm) + costs.launch, bound if seconds >= hbm else HBM)


def flops(plan: Plan, shape: Shape) -> int:
    """FLOP of the matrix products, for each visible (query, key) pair.

    2*(d + dv) in the forward; 2*(3*d + 2*dv) in the backward, whose products are S, dP, dV, dK and dQ.
    """
    problem = plan.spec.problem
    d, dv = problem.head_dim, problem.dim_v
    pairs = Blocks(shape.seqlen_q, shape.seqlen_k, 1, 1, problem.window).left
    products = d + dv if plan.direction == "forward" else 3 * d + 2 * dv
    return 2 * shape.batch * shape.heads_q * pairs * products
