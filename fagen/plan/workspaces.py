"""Memory that the kernels of a pass hand on to each other, or keep sums in.

A head's rows of Q are padded to whole Q tiles of Br = tiling.q rows. In workspaces a (batch, query head) pair
has `head_tiles` of them. Packed sequences share a head's: with one tile more for each sequence before,
sequence b starts at tile cu_seqlens_q[b] // Br + b, and no two overlap.
"""

from __future__ import annotations

from fagen.plan.ir import Plan
from fagen.plan.launch import Shape

FLOAT_BYTES, TURN_BYTES = 4, 4


def head_tiles(plan: Plan, shape: Shape) -> int:
    """Q tiles of one head in the workspaces: of a sequence, or of all packed ones."""
    if plan.spec.problem.layout == "thd":
        return shape.rows_q // plan.tiling.q + shape.batch
    return -(-shape.seqlen_q // plan.tiling.q)


def workspaces(plan: Plan, shape: Shape) -> dict[str, int]:
    """Bytes of what kernels hand on to each other or to themselves, by the name of its address.

    Sums are fp32, in the order of the fragments.
    """
    is_v1 = plan.spec.family == "v1"
    sequences = 1 if plan.spec.problem.layout == "thd" else shape.batch
    tiles = sequences * shape.heads_q * head_tiles(plan, shape)
    if plan.direction == "forward":
        return {"o_sum": FLOAT_BYTES * tiles * plan.tiling.q * plan.dim_v} if is_v1 else {}
    dq_sum = {"dq_sum": FLOAT_BYTES * tiles * plan.tiling.q * plan.dim}
    if is_v1:
        return dq_sum
    return dq_sum | {
        "row_stats": FLOAT_BYTES * tiles * plan.tiling.q * 2,  # LSE * log2(e) and delta of each row
        "turns": TURN_BYTES * tiles,  # K/V tiles that have added to each tile of dq_sum
    }
