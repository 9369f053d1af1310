"""How tiles pass through v2's kernels: every warp loads by cp.async, and every warp multiplies."""

from __future__ import annotations

from fagen.plan.ir import Plan
from fagen.plan.pipeline import CTA_BARRIER, EXCHANGE, LOAD, Passage, Pipeline, Role, Signal
from fagen.plan.v2_budget import REGISTERS


def forward(plan: Plan) -> Pipeline:
    """pipe/ring.cuh: no barrier of the CTA; warps drift apart by as many tiles as the ring has slack."""
    math = all_warps(plan, "load; multiply, and take the softmax of, their own rows of Q")
    full, empty = (Signal(name, plan.tiling.threads) for name in ("full", "empty"))
    return Pipeline(
        math,
        (math,),
        (
            Passage(("q",), LOAD, "cp.async", full, None, then="O"),
            Passage(("k", "v"), LOAD, "cp.async", full, empty),
        ),
    )


def backward(plan: Plan) -> Pipeline:
    """pipe/arrivals.cuh: the CTA's barrier that P and dS need says, too, that all are done with Q and dO."""
    turns = "; CTAs add to dQ in turns" if plan.spec.problem.deterministic else ""
    math = all_warps(plan, f"load; share all five products; take P and dS{turns}")
    full, cta = Signal("full", plan.tiling.threads), Signal(CTA_BARRIER, plan.tiling.threads)
    return Pipeline(
        math,
        (math,),
        (
            Passage(("k", "v"), LOAD, "cp.async", full, None, then="dK and dV"),
            Passage(("q", "dout", "stats"), LOAD, "cp.async", full, cta),
            Passage(("p", "ds"), EXCHANGE, "st.shared", cta, cta),
        ),
    )


def all_warps(plan: Plan, does: str) -> Role:
    """The one role of a kernel in which every warp does the same."""
    allowed = next(account.allowed for account in plan.accounts if account.resource == REGISTERS)
    return Role("math", plan.tiling.warps, allowed, does)
