"""From a plan to the names that templates use: the only place that knows both."""

from __future__ import annotations

from typing import Any

from fagen.hw.dtypes import DTYPES
from fagen.plan.ir import Plan
from fagen.plan.params import FORWARD, struct_bytes

# Headers of the v2 forward kernel, besides the scheduler's.
_V2_HEADERS = (
    "attn/mask.cuh",
    "attn/softmax.cuh",
    "epilogue/store_rows.cuh",
    "mma/sm80.cuh",
    "pipe/load_tile.cuh",
    "pipe/ring.cuh",
)


def context(plan: Plan) -> dict[str, Any]:
    """Template variables of a plan."""
    problem, tiling = plan.spec.problem, plan.tiling
    lazy = -1.0 if tiling.lazy_rescale is None else tiling.lazy_rescale
    return {
        "symbol": plan.symbol,
        "arch": plan.arch,
        "problem": problem,
        "problem_lines": _problem_lines(plan),
        "accounts": plan.accounts,
        "tiling": tiling,
        "lazy": f"{lazy!r}f",
        "dtype": DTYPES[problem.dtype],
        "dim": plan.dim,
        "dim_v": plan.dim_v,
        "buffers": plan.buffers,
        "barriers_offset": plan.barriers_offset,
        "params": FORWARD,
        "params_bytes": struct_bytes(FORWARD),
        "headers": (*_V2_HEADERS, f"sched/{tiling.scheduler}.cuh"),
    }


def _problem_lines(plan: Plan) -> list[str]:
    problem = plan.spec.problem
    masks = {
        "none": "no mask",
        "causal": "causal mask, bottom-right: query i sees key j <= i + seqlen_k - seqlen_q",
    }
    dims = f"head_dim {problem.head_dim}, head_dim_v {problem.dim_v}"
    return [f"problem: {problem.dtype}, {dims}, layout {problem.layout}", masks[problem.mask]]
