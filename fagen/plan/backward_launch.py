"""The launches of a planned backward on one shape, and the workspaces of either pass.

A head's rows of Q are padded to whole Q tiles of Br = tiling.q rows. In workspaces a (batch, query head) pair
has `head_tiles` of them. Packed sequences share a head's: with one tile more for each sequence before,
sequence b starts at tile cu_seqlens_q[b] // Br + b, and no two overlap.
"""

from __future__ import annotations

from fagen.plan.ir import Plan
from fagen.plan.launch import Launch, Scalars, Shape, check_sizes, factors, heads_abreast, launch

FLOAT_BYTES, TURN_BYTES = 4, 4


def backward_launches(
    plan: Plan, shape: Shape, scale: float, sms: int | None = None, dropout_p: float = 0.0
) -> tuple[Launch, ...]:
    """The launches of the plan's kernels, in their order, as `launch` has that of the forward.

    All grids are 0 where every gradient is 0, for lack of queries or keys.
    Raises PlanError if a grid or a size is beyond what the kernels' 32-bit integers hold.
    """
    sms = plan.device.sms if sms is None else sms
    q_tiles, kv_tiles = -(-shape.seqlen_q // plan.tiling.q), -(-shape.seqlen_k // plan.tiling.kv)
    of_queries = shape.batch * shape.heads_q * q_tiles
    of_keys = shape.batch * shape.heads_kv * kv_tiles
    check_sizes(
        plan,
        shape,
        {
            "batch * heads_q * ceil(seqlen_q / backward.tile.q)": of_queries,
            "batch * heads_kv * ceil(seqlen_k / backward.tile.kv)": of_keys,
        },
    )
    scalars = Scalars(
        batch=shape.batch,
        heads_q=shape.heads_q,
        heads_kv=shape.heads_kv,
        heads_per_kv=shape.heads_q // shape.heads_kv if shape.heads_kv else 1,
        seqlen_q=shape.seqlen_q,
        seqlen_k=shape.seqlen_k,
        q_tiles=q_tiles,
        heads_abreast=heads_abreast(plan, shape.batch * shape.heads_kv, kv_tiles, 1, sms),
        group_log2=0,
        **factors(plan.spec.problem, scale, dropout_p),
        tokens_q=shape.rows_q,
        tokens_k=shape.rows_k,
        kv_tiles=kv_tiles,
        head_tiles=head_tiles(plan, shape),
    )
    if not (of_queries and of_keys and shape.rows_q and shape.rows_k):
        of_queries = of_keys = 0
    if plan.spec.family == "v1":  # a CTA for all keys of a K/V head
        return (Launch(shape.batch * shape.heads_kv if of_keys else 0, 1, scalars),)
    return tuple(Launch(grid, 1, scalars) for grid in (of_queries, of_keys, of_queries))


def launches(
    plan: Plan, shape: Shape, scale: float, sms: int | None = None, dropout_p: float = 0.0
) -> tuple[Launch, ...]:
    """The launches of a plan's kernels, whatever its pass, in their order."""
    if plan.direction == "forward":
        return (launch(plan, shape, scale, sms, dropout_p),)
    return backward_launches(plan, shape, scale, sms, dropout_p)


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
