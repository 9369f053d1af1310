"""What no data sheet says: which share of its rates a device reaches, and what waiting costs it.

A set of numbers for each pass of a family. The shipped ones were fitted to runs on an H200, and stand for
every other device as an estimate; `fagen.tune.calibrate` fits a device's own to what was measured on it. The
planner has numbers of its own, PLANNER, that nothing changes: what it makes of a spec is the same everywhere.

The fits: v3's forward to variants of 13 shapes (tests/plan/data), rms 4% off, and to the tables of
docs/performance.md, rms 5%; v2's backward to 4 such shapes, rms 7%, its forward to one, rms 12%, and to 34
runs of those tables, rms 7%. v1 has the planner's numbers; only its launch can be calibrated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fagen.plan.ir import Plan


@dataclass(frozen=True)
class MmaSync:
    """A family whose warps load, multiply and take exponentials one after the other: v1, v2."""

    exposed: float = 0.6  # share of the non-bounding engines' cycles that one warp per scheduler cannot hide
    latency: float = 100  # cycles per tile: the first ldmatrix, the last shuffles of the row maximum
    straggler: float = 30  # cycles per barrier and warp: the slowest warp is waited for
    fetch: float = 1000  # cycles from the issue of a tile's cp.async to its arrival under load
    cta: float = 1000  # cycles of a CTA around its tiles: its start, its first loads, its results
    launch: float = 4e-6  # seconds from one kernel to the next


@dataclass(frozen=True)
class Wgmma:
    """A family of roles, TMA and wgmma: v3's forward, in the terms of `timeline.py`."""

    tensor: float = 0.955  # share of the tensor core's peak, at the clock that its power leaves
    mufu: float = 0.784  # share of MUFU's rate that exponentials reach, among other instructions
    l2: float = 2.1  # of the bandwidth that the device's row has; 60 bytes per SM and clock on an H200
    issue: float = 2.32  # cycles from an instruction of a warp to its next
    contention: float = 0.46  # how much slower softmax goes beside products: both use the registers
    drain: float = 326  # cycles from the end of a product on the tensor core to its use
    handoff: float = 21.4  # cycles from an event (a barrier, a shuffle) to the waiter's next step
    split_row: float = 10.7  # cycles of TMA for a row of K or V, where rows are no whole sectors of 32 bytes
    load_latency: float = 683  # cycles from L2's last byte of a TMA load to its use
    item: float = 382  # cycles of a math role between two work items: sums, LSE, the next item's place
    store: float = 22.2  # instructions' time for each element of O: through shared memory, to its rows
    cta: float = 1450  # cycles from the end of a CTA to the first load of the next one
    drift: float = 3.07  # how little warps that drift apart lose on an engine and a role as busy as it
    late: float = 0.31  # share of the time that HBM needs for tiles that L2 has lost which is waited for
    launch: float = 8.7e-6  # seconds from one kernel to the next


Efficiency = MmaSync | Wgmma
Efficiencies = Mapping[str, Efficiency]  # by the name of a pass: "v2 backward"

PLANNER = MmaSync()
V1 = PLANNER
V2_FORWARD = MmaSync(exposed=0.54, latency=90)
V2_BACKWARD = MmaSync(exposed=0.54, latency=34, straggler=37, fetch=620, cta=11_300)
V3_FORWARD = Wgmma()
SHIPPED: Efficiencies = {  # v3's backward is v2's
    "v1 forward": V1,
    "v1 backward": V1,
    "v2 forward": V2_FORWARD,
    "v2 backward": V2_BACKWARD,
    "v3 forward": V3_FORWARD,
}


def pass_name(plan: Plan) -> str:
    """The key of a plan's pass: whose kernels they are, and the direction."""
    family = "v2" if (plan.spec.family, plan.direction) == ("v3", "backward") else plan.spec.family
    return f"{family} {plan.direction}"
