"""The launches of a planned backward on one shape."""

from __future__ import annotations

from fagen.plan.ir import Plan
from fagen.plan.launch import Launch, Scalars, Shape, check_sizes, factors, heads_abreast, launch
from fagen.plan.workspaces import head_tiles


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
