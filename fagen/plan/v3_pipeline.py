"""How tiles pass through v3's forward: pipe/stream.cuh, pipe/turns.cuh, epilogue/warpgroup_tma.cuh."""

from __future__ import annotations

from fagen.plan.ir import Plan
from fagen.plan.pipeline import LOAD, STORE, Passage, Pipeline, Role, Signal

FIRST_TURN = 1  # named barriers: 0 is __syncthreads's, then a turn and a store for each warpgroup


def forward(plan: Plan) -> Pipeline:
    """One thread loads by TMA into three rings; a math warpgroup uses its rows of Q, and all K and V.

    Of 8 bits V may go on from its ring into another, transposed by warps of the load role.
    """
    tiling = plan.tiling
    groups = tiling.warps // 4
    sizes = {buffer.name: buffer.bytes // buffer.stages for buffer in plan.buffers}

    def ring(name: str, readers: int, *beside: str) -> Passage:
        full = Signal(f"{name}_full", 1, sizes[name])
        return Passage((name,), LOAD, "TMA", full, Signal(f"{name}_empty", readers), beside)

    math = tiling.warps * tiling.cluster
    beside_q = ("item", "descales") if tiling.head_descales else ("item",)
    passages = [ring("q", tiling.warps, *beside_q), ring("k", math)]
    if tiling.transposers:
        full, empty = Signal("vt_full", tiling.transposers), Signal("vt_empty", tiling.warps)
        passages.append(ring("v", tiling.transposers * tiling.cluster, "v_end"))
        passages.append(Passage(("vt",), LOAD, "stmatrix", full, empty))
    else:
        passages.append(ring("v", math))
    if tiling.own_o:
        numbers = range(FIRST_TURN + groups, FIRST_TURN + 2 * groups)
        stored = Signal(f"named barriers {', '.join(map(str, numbers))}", 128)
        passages.append(Passage(("o",), STORE, "TMA", stored, stored))
    return Pipeline(
        _load(plan),
        tuple(_math(plan, group) for group in range(groups)),
        tuple(passages),
        tuple(Signal(f"named barrier {FIRST_TURN + group}", 256) for group in range(groups))
        if tiling.pingpong
        else (),
    )


def _load(plan: Plan) -> Role:
    tiling = plan.tiling
    counter = "; a counter in global memory hands it work items" if tiling.has_counters else ""
    share = f"; of K and V its share, for {tiling.cluster} CTAs" if tiling.cluster > 1 else ""
    transposes = f"; {tiling.transposers} warps transpose V" if tiling.transposers else ""
    does = f"one thread issues the TMA loads of Q, K and V{share}{counter}{transposes}"
    return Role("load", tiling.load_warps, tiling.load_registers, does)


def _math(plan: Plan, group: int) -> Role:
    turns = "; in turns, by named barriers" if plan.tiling.pingpong else ""
    does = f"rows {64 * group} to {64 * group + 63} of Q{turns}"
    return Role(f"math {group}", 4, plan.tiling.math_registers, does)
