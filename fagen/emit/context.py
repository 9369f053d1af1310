"""From a planned kernel to the names that its template uses: the only place that knows both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fagen.hw.dtypes import DTYPES
from fagen.plan import params
from fagen.plan.ir import Plan
from fagen.plan.kernels import KernelPlan

# Which of the orders in sched/ each schedule.scheduler hands items out in.
_ORDERS = {
    "in_order": "in_order",
    "longest_first": "longest_first",
    "persistent": "in_order",
    "persistent_lpt": "longest_first",
}


def context(kernel: KernelPlan) -> dict[str, Any]:
    """Template variables of a kernel."""
    plan = kernel.plan
    problem, tiling = plan.spec.problem, plan.tiling
    left, right = ("fagen::attn::kUnbounded" if side is None else side for side in problem.window)
    return {
        "symbol": kernel.symbol,
        "arch": plan.arch,
        "problem": problem,
        "problem_lines": _problem_lines(plan),
        "accounts": plan.accounts,
        "tiling": tiling,
        "window": {"left": left, "right": right},
        "softcap": None if problem.softcap is None else _float(problem.softcap),
        "dropout": problem.dropout,
        "dtype": DTYPES[problem.dtype],
        "dim": plan.dim,
        "dim_v": plan.dim_v,
        "buffers": kernel.buffers,
        "barriers_offset": kernel.barriers_offset,
        "threads": kernel.threads,
        "params": kernel.params,
        "params_bytes": params.struct_bytes(kernel.params),
        "order": _ORDERS[tiling.scheduler],
        **_OWN[kernel.template](plan),
    }


def _v1_forward(plan: Plan) -> dict[str, Any]:
    return {
        "headers": (
            "attn/block_softmax.cuh",
            "attn/mask.cuh",
            "epilogue/store_rows.cuh",
            "epilogue/sum_tile.cuh",
            "mma/sm80.cuh",
            "pipe/load_tile.cuh",
            "pipe/warp_rows.cuh",
        )
    }


def _v1_backward(plan: Plan) -> dict[str, Any]:
    return {
        "headers": (
            "attn/block_statistics.cuh",
            "attn/gradient.cuh",
            "attn/mask.cuh",
            "epilogue/store_rows.cuh",
            "epilogue/sum_tile.cuh",
            "mma/sm80.cuh",
            "mma/store_shared.cuh",
            "pipe/arrivals.cuh",
            "pipe/load_tile.cuh",
            "pipe/split_barrier.cuh",
            "sched/q_blocks.cuh",
        )
    }


def _v2_forward(plan: Plan) -> dict[str, Any]:
    problem = plan.spec.problem
    headers = {
        "attn/dropout.cuh": problem.dropout,
        "attn/mask.cuh": True,
        "attn/softcap.cuh": problem.softcap is not None,
        "attn/softmax.cuh": True,
        "epilogue/clear_rows.cuh": problem.layout == "thd",
        "epilogue/store_lse.cuh": True,
        "epilogue/store_rows.cuh": True,
        "mma/sm80.cuh": True,
        "pipe/load_tile.cuh": True,
        "pipe/ring.cuh": True,
        f"sched/{_ORDERS[plan.tiling.scheduler]}.cuh": True,
    }
    return _v2(plan, headers) | _softmax(plan)


def _v2_backward_prepare(plan: Plan) -> dict[str, Any]:
    headers = {
        "attn/row_stats.cuh": True,
        "epilogue/clear_rows.cuh": plan.spec.problem.layout == "thd",
        "ptx/global.cuh": True,
    }
    return _v2(plan, headers)


def _v2_backward(plan: Plan) -> dict[str, Any]:
    problem = plan.spec.problem
    headers = {
        "attn/dropout.cuh": problem.dropout,
        "attn/gradient.cuh": True,
        "attn/mask.cuh": True,
        "attn/softcap.cuh": problem.softcap is not None,
        "epilogue/store_rows.cuh": True,
        "epilogue/sum_tile.cuh": True,
        "mma/sm80.cuh": True,
        "pipe/arrivals.cuh": True,
        "pipe/load_tile.cuh": True,
        "ptx/atomic.cuh": problem.deterministic,
        "ptx/cp_async.cuh": True,
        "ptx/shared.cuh": True,
        f"sched/{_ORDERS[plan.tiling.scheduler]}.cuh": True,
    }
    return _v2(plan, headers)


def _v2_backward_convert(plan: Plan) -> dict[str, Any]:
    headers = ("epilogue/store_rows.cuh", "epilogue/sum_tile.cuh", "mma/sm80.cuh", "ptx/shared.cuh")
    return _v2(plan, dict.fromkeys(headers, True))


def _v2(plan: Plan, headers: dict[str, bool]) -> dict[str, Any]:
    problem = plan.spec.problem
    is_packed = problem.layout == "thd"
    sequences = {"sched/any_length.cuh": is_packed, "sched/same_length.cuh": not is_packed}
    return {
        "headers": _used(headers | sequences),
        "sequence": "AnyLength" if is_packed else "SameLength",
        "deterministic": problem.deterministic,
    }


def _softmax(plan: Plan) -> dict[str, Any]:
    tiling = plan.tiling
    return {
        "lazy": _float(-1.0 if tiling.lazy_rescale is None else tiling.lazy_rescale),
        "polynomial": _float(tiling.polynomial),
    }


def _v3_forward(plan: Plan) -> dict[str, Any]:
    problem, tiling = plan.spec.problem, plan.tiling
    has_growth = tiling.growth is not None
    sequence = "Batched"
    if problem.layout == "thd":
        sequence = "Packed"
    elif tiling.pack_gqa:
        sequence = "Grouped"
    headers = {
        "attn/block_descale.cuh": problem.scales_blocks,
        "attn/descale.cuh": problem.is_fp8 and not problem.scales_blocks,
        "attn/mask.cuh": True,
        "attn/softcap.cuh": problem.softcap is not None,
        "attn/softmax.cuh": True,
        "epilogue/clear_rows.cuh": sequence == "Packed",
        "epilogue/store_lse.cuh": True,
        "epilogue/warpgroup_registers.cuh": not tiling.own_o,
        "epilogue/warpgroup_tma.cuh": tiling.own_o,
        "mma/promote.cuh": tiling.promote_every is not None,
        "mma/scores_again.cuh": has_growth,
        "mma/sm80.cuh": has_growth,
        "mma/sm90.cuh": not problem.is_fp8,
        "mma/sm90_fp8.cuh": problem.is_fp8,
        "pipe/stream.cuh": True,
        "pipe/turns.cuh": tiling.pingpong,
        "ptx/elect.cuh": True,
        "ptx/setmaxnreg.cuh": True,
        "ptx/shared.cuh": True,
        "ptx/uniform.cuh": True,
        "role/load.cuh": True,
        "role/transpose.cuh": tiling.transposers > 0,
        "sched/batched.cuh": sequence == "Batched",
        "sched/counter.cuh": tiling.has_counters,
        "sched/grouped.cuh": sequence == "Grouped",
        f"sched/{_ORDERS[tiling.scheduler]}.cuh": True,
        "sched/item.cuh": True,
        "sched/packed.cuh": sequence == "Packed",
        "sched/rounds.cuh": not tiling.has_counters,
    }
    return {
        "headers": _used(headers),
        "growth": None if tiling.p_limit is None else _float(tiling.p_limit),
        "handout": "Counter" if tiling.has_counters else f"Rounds<{tiling.cluster}>",
        "sequence": sequence,
        **_softmax(plan),
        **(_fp8(plan) if problem.is_fp8 else _16_bits()),
    }


def _16_bits() -> dict[str, Any]:
    return {
        "bytes": "",
        "out": "T",
        "v": "v",
        "softmax": "attn::Softmax<1>",
        "score_scale": "p.scale_log2",
        "softcap_scale": "p.softcap_scale",
        "round": "mma::round<T>",
    }


def _fp8(plan: Plan) -> dict[str, Any]:
    problem, tiling = plan.spec.problem, plan.tiling
    descales = "HeadDescales"
    if problem.fp8 is not None and problem.scales_blocks:
        descales = f"BlockDescales<{problem.fp8.block}, kTileKv>"
    qk = "descales.qk()" if problem.scales_blocks else "descales.qk"
    scale = f"attn::score_scale(p.scale_log2 * {qk})" if problem.softcap is None else "p.scale_log2"
    return {
        "bytes": ", 1",
        "out": "Out",
        "dtype_out": DTYPES[problem.dtype_out],
        "descales": descales,
        "v": "vt" if tiling.transposers else "v",
        "softmax": "Cfg::Softmax",
        "score_scale": "p.scale_log2" if problem.scales_blocks else scale,
        "tile_scale": scale,
        "softcap_scale": f"p.softcap_scale * {qk}",
        "round": "mma::round_e4m3<Cfg::KeyOrder>",
        "p_offset": tiling.p_offset,
    }


# What only one template uses.
_OWN: dict[str, Callable[[Plan], dict[str, Any]]] = {
    "v1/backward.cu.j2": _v1_backward,
    "v1/forward.cu.j2": _v1_forward,
    "v2/forward.cu.j2": _v2_forward,
    "v2/backward_prepare.cu.j2": _v2_backward_prepare,
    "v2/backward.cu.j2": _v2_backward,
    "v2/backward_convert.cu.j2": _v2_backward_convert,
    "v3/forward.cu.j2": _v3_forward,
}


def _used(headers: dict[str, bool]) -> tuple[str, ...]:
    return tuple(sorted(name for name, is_used in headers.items() if is_used))


def _float(value: float) -> str:
    return f"{value!r}f"


def _problem_lines(plan: Plan) -> list[str]:
    problem = plan.spec.problem
    dims = f"head_dim {problem.head_dim}, head_dim_v {problem.dim_v}"
    dtype = f"{problem.dtype} to {problem.dtype_out}" if problem.is_fp8 else problem.dtype
    lines = [f"problem: {dtype}, {dims}, layout {problem.layout}", _mask_line(*problem.window)]
    if problem.softcap is not None:
        lines.append(f"soft cap {problem.softcap:g}: scores are cap * tanh(score / cap), before the mask")
    if problem.dropout:
        lines.append("dropout: elements of P are kept by random numbers, Philox4x32-10")
    return lines


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
