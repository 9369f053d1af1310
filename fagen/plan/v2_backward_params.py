"""The arguments of v2's three backward kernels, field by field, as `params.py` has those of the forward.

`dq_sum`, `row_stats` and `turns` are workspaces, see `workspaces.py`.
"""

from __future__ import annotations

from fagen.plan.ir import Plan
from fagen.plan.params import OFFSETS, PACKED, SEED, TOKENS_Q, Param, meaning, scales, strides

_Q = Param("q", "const T*", "queries")
_K = Param("k", "const T*", "keys")
_V = Param("v", "const T*", "values")
_OUT = Param("out", "const T*", "the forward's output")
_DOUT = Param("dout", "const T*", "gradient of out")
_DQ = Param("dq", "T*", "gradient of q")
_DK = Param("dk", "T*", "gradient of k")
_DV = Param("dv", "T*", "gradient of v")
_LSE = Param("lse", "const float*", "the forward's natural-log sum of exp, [batch, heads_q, seqlen_q]")
_DLSE = Param("dlse", "const float*", "gradient of lse, like it; null: none")
_ROW_STATS = Param("row_stats", "float*", "[Q tiles][Br][2]: LSE * log2(e), and rowsum(dO * O) - dLSE")
_ROW_STATS_READ = Param("row_stats", "const float*", _ROW_STATS.meaning)
_DQ_SUM = Param("dq_sum", "float*", "[Q tiles][Br * dim]: dQ / scale, summed up, in the order of fragments")
_DQ_SUM_READ = Param("dq_sum", "const float*", _DQ_SUM.meaning)
_TURNS = Param("turns", "uint32_t*", "[Q tiles]: K/V tiles that have added to each tile of dq_sum")

_BATCH = Param("batch", "int32_t", "sequences")
_HEADS_Q = Param("heads_q", "int32_t", "query heads")
_HEADS_KV = Param("heads_kv", "int32_t", "K/V heads")
_HEADS_PER_KV = Param("heads_per_kv", "int32_t", "query heads that share one K/V head")
_LENGTHS = (
    Param("seqlen_q", "int32_t", "queries per sequence"),
    Param("seqlen_k", "int32_t", "keys per sequence"),
)
_Q_TILES = Param("q_tiles", "int32_t", "ceil(seqlen_q / Br)")
_KV_TILES = Param("kv_tiles", "int32_t", "ceil(seqlen_k / Bc)")
_HEAD_TILES = Param("head_tiles", "int32_t", "Q tiles of one head in the workspaces")
_ABREAST = Param(
    "heads_abreast", "int32_t", "(batch, K/V head) pairs that sched/longest_first.cuh runs side by side"
)
_TOKENS_K = Param("tokens_k", "int32_t", "rows of k and v")
_SCALE = Param("scale", "float", "softmax scale")

_PACKED = PACKED | {
    "lse": "the forward's natural-log sum of exp, [heads_q, tokens_q]",
    "q_tiles": "Q tiles of the longest sequence",
    "kv_tiles": "K/V tiles of the longest sequence",
}


def prepare(plan: Plan) -> tuple[Param, ...]:
    """Of the kernel that makes `row_stats` and clears `dq_sum`, in packed tensors the gradients as well."""
    cleared = (_DQ, _DK, _DV) if plan.spec.problem.layout == "thd" else ()
    return _of(
        plan,
        (_OUT, _DOUT, _LSE, _DLSE, _ROW_STATS, _DQ_SUM, *_turns(plan), *cleared),
        (*strides("out"), *strides("dout")),
        (_BATCH, _HEADS_Q, _HEADS_KV, *_LENGTHS, _HEAD_TILES, _Q_TILES),
        (TOKENS_Q, _TOKENS_K),
    )


def main(plan: Plan) -> tuple[Param, ...]:
    """Of the kernel that multiplies."""
    problem = plan.spec.problem
    seed = (SEED,) if problem.dropout else ()
    pointers = (_Q, _K, _V, _DOUT, _DK, _DV, _ROW_STATS_READ, _DQ_SUM, *_turns(plan), *seed)
    counts = (_BATCH, _HEADS_Q, _HEADS_KV, _HEADS_PER_KV, *_LENGTHS, _KV_TILES, _HEAD_TILES, _ABREAST)
    fields = _of(
        plan,
        pointers,
        tuple(step for tensor in ("q", "k", "v", "dout", "dk", "dv") for step in strides(tensor)),
        counts,
        (TOKENS_Q,),
    )
    return (*fields, _SCALE, *scales(problem))


def convert(plan: Plan) -> tuple[Param, ...]:
    """Of the kernel that makes dQ of `dq_sum`."""
    counts = (_BATCH, _HEADS_Q, *_LENGTHS, _HEAD_TILES, _Q_TILES)
    return (*_of(plan, (_DQ_SUM_READ, _DQ), strides("dq"), counts, (TOKENS_Q,)), _SCALE)


def _turns(plan: Plan) -> tuple[Param, ...]:
    return (_TURNS,) if plan.spec.problem.deterministic else ()


def _of(
    plan: Plan,
    pointers: tuple[Param, ...],
    steps: tuple[Param, ...],
    counts: tuple[Param, ...],
    tokens: tuple[Param, ...],
) -> tuple[Param, ...]:
    """The fields in the order of every struct; offsets and `tokens` with packed sequences only."""
    if plan.spec.problem.layout != "thd":
        return (*pointers, *steps, *counts)
    return meaning((*pointers, *OFFSETS, *steps, *counts, *tokens), _PACKED)
