"""How tiles pass through v1's kernels: every warp loads by cp.async, and every warp multiplies."""

from __future__ import annotations

from fagen.plan.ir import Plan
from fagen.plan.pipeline import (
    CTA_BARRIER,
    EXCHANGE,
    LOAD,
    WARP_BARRIER,
    Passage,
    Pipeline,
    Signal,
)
from fagen.plan.v2_pipeline import all_warps


def forward(plan: Plan) -> Pipeline:
    """Each warp loads and uses its own rows of Q."""
    math = all_warps(plan, "load K, V and their own rows of Q; multiply; take the softmax of these rows")
    cta, warp = Signal(CTA_BARRIER, plan.tiling.threads), Signal(WARP_BARRIER, 32)
    return Pipeline(
        math,
        (math,),
        (
            Passage(("k", "v"), LOAD, "cp.async", cta, cta),
            Passage(("q",), LOAD, "cp.async", warp, warp, then="O"),
        ),
    )


def backward(plan: Plan) -> Pipeline:
    """pipe/arrivals.cuh and pipe/split_barrier.cuh: one barrier of the CTA, when P and dS are there."""
    math = all_warps(plan, "load; share all five products; take P and dS")
    full, meeting = (Signal(name, plan.tiling.threads) for name in ("full", "meeting"))
    cta = Signal(CTA_BARRIER, plan.tiling.threads)
    used = meeting if plan.tiling.stages > 1 else cta
    return Pipeline(
        math,
        (math,),
        (
            Passage(("k", "v"), LOAD, "cp.async", full, cta, then="dK and dV"),
            Passage(("q",), LOAD, "cp.async", full, used, then="dQ"),
            Passage(("dout",), LOAD, "cp.async", full, used),
            Passage(("out",), LOAD, "cp.async", full, meeting),
            Passage(("p", "ds"), EXCHANGE, "st.shared", cta, meeting),
            Passage(("stats",), EXCHANGE, "st.shared", meeting, cta),
        ),
    )
