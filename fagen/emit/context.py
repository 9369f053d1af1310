"""From a plan to the names that templates use: the only place that knows both."""

from __future__ import annotations

from typing import Any

from fagen.hw.dtypes import DTYPES
from fagen.plan import params
from fagen.plan.ir import Plan

# Which of the orders in sched/ each schedule.scheduler hands items out in.
_ORDERS = {
    "in_order": "in_order",
    "longest_first": "longest_first",
    "persistent": "in_order",
    "persistent_lpt": "longest_first",
}


def context(plan: Plan) -> dict[str, Any]:
    """Template variables of a plan."""
    problem, tiling = plan.spec.problem, plan.tiling
    fields = params.forward(plan)
    left, right = ("fagen::attn::kUnbounded" if side is None else side for side in problem.window)
    return {
        "symbol": plan.symbol,
        "arch": plan.arch,
        "problem": problem,
        "problem_lines": _problem_lines(plan),
        "accounts": plan.accounts,
        "tiling": tiling,
        "window": {"left": left, "right": right},
        "lazy": _float(-1.0 if tiling.lazy_rescale is None else tiling.lazy_rescale),
        "polynomial": _float(tiling.polynomial),
        "dtype": DTYPES[problem.dtype],
        "dim": plan.dim,
        "dim_v": plan.dim_v,
        "buffers": plan.buffers,
        "barriers_offset": plan.barriers_offset,
        "params": fields,
        "params_bytes": params.struct_bytes(fields),
        "order": _ORDERS[tiling.scheduler],
        **(_v2(plan) if plan.spec.family == "v2" else _v3(plan)),
    }


def _v2(plan: Plan) -> dict[str, Any]:
    return {
        "headers": (
            "attn/mask.cuh",
            "attn/softmax.cuh",
            "epilogue/store_lse.cuh",
            "epilogue/store_rows.cuh",
            "mma/sm80.cuh",
            "pipe/load_tile.cuh",
            "pipe/ring.cuh",
            f"sched/{_ORDERS[plan.tiling.scheduler]}.cuh",
        ),
    }


def _v3(plan: Plan) -> dict[str, Any]:
    tiling = plan.tiling
    has_growth = tiling.growth is not None
    sequence = "Batched"
    if plan.spec.problem.layout == "thd":
        sequence = "Packed"
    elif tiling.pack_gqa:
        sequence = "Grouped"
    headers = {
        "attn/mask.cuh": True,
        "attn/softmax.cuh": True,
        "epilogue/clear_rows.cuh": sequence == "Packed",
        "epilogue/store_lse.cuh": True,
        "epilogue/warpgroup_registers.cuh": not tiling.own_o,
        "epilogue/warpgroup_tma.cuh": tiling.own_o,
        "mma/sm80.cuh": has_growth,
        "mma/sm90.cuh": True,
        "pipe/stream.cuh": True,
        "pipe/turns.cuh": tiling.pingpong,
        "ptx/elect.cuh": True,
        "ptx/setmaxnreg.cuh": True,
        "ptx/shared.cuh": True,
        "ptx/uniform.cuh": True,
        "role/load.cuh": True,
        "sched/batched.cuh": sequence == "Batched",
        "sched/counter.cuh": tiling.has_counters,
        "sched/grouped.cuh": sequence == "Grouped",
        f"sched/{_ORDERS[tiling.scheduler]}.cuh": True,
        "sched/item.cuh": True,
        "sched/packed.cuh": sequence == "Packed",
        "sched/rounds.cuh": not tiling.has_counters,
    }
    return {
        "headers": tuple(sorted(name for name, is_used in headers.items() if is_used)),
        "growth": _float(2.0**tiling.growth) if tiling.growth is not None else None,
        "handout": "Counter" if tiling.has_counters else f"Rounds<{tiling.cluster}>",
        "sequence": sequence,
    }


def _float(value: float) -> str:
    return f"{value!r}f"


def _problem_lines(plan: Plan) -> list[str]:
    problem = plan.spec.problem
    dims = f"head_dim {problem.head_dim}, head_dim_v {problem.dim_v}"
    return [f"problem: {problem.dtype}, {dims}, layout {problem.layout}", _mask_line(*problem.window)]


def _mask_line(left: int | None, right: int | None) -> str:
    place = "i + seqlen_k - seqlen_q"
    if (left, right) == (None, None):
        return "no mask"
    if (left, right) == (None, 0):
        return f"causal mask, bottom-right: query i sees key j <= {place}"
    sides = (
        "" if left is None else f"{place} - {left} <= ",
        "" if right is None else f" <= {place} + {right}",
    )
    return f"window mask, bottom-right: query i sees key j, {sides[0]}j{sides[1]}"
