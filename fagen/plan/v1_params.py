"""The arguments of v1's two kernels, field by field, as `params.py` has those of the other forwards."""

from __future__ import annotations

from fagen.plan.ir import Plan
from fagen.plan.params import Param, scales, strides

_Q = Param("q", "const T*", "queries")
_K = Param("k", "const T*", "keys")
_V = Param("v", "const T*", "values")
_STATISTICS = (
    "[2][batch][heads_q][seqlen_q]: m, the maxima of the scaled scores, and l, the sums of e^(score - m)"
)
_BLOCKS = "[batch][heads_q][ceil(seqlen_q / Br)][Br]"
_ORDER = "a block in the order of its fragments"
_COUNTS = (
    Param("batch", "int32_t", "sequences"),
    Param("heads_q", "int32_t", "query heads"),
    Param("heads_per_kv", "int32_t", "query heads that share one K/V head"),
    Param("seqlen_q", "int32_t", "queries per sequence"),
    Param("seqlen_k", "int32_t", "keys per sequence"),
)
_HEADS_KV = Param("heads_kv", "int32_t", "K/V heads")
_SCALE = Param("scale", "float", "softmax scale (tau)")


def forward(_: Plan) -> tuple[Param, ...]:
    """Of the forward."""
    pointers = (
        _Q,
        _K,
        _V,
        Param("out", "T*", "output"),
        Param("lse", "float*", "natural-log sum of exp, [batch, heads_q, seqlen_q]; null: not wanted"),
        Param("o_sum", "float*", f"{_BLOCKS}[dv]: O between K/V blocks, {_ORDER}"),
        Param("row_stats", "float*", _STATISTICS),
    )
    return _of(pointers, ("q", "k", "v", "out"), _COUNTS)


def backward(plan: Plan) -> tuple[Param, ...]:
    """Of the backward."""
    pointers = (
        _Q,
        _K,
        _V,
        Param("out", "const T*", "the forward's output"),
        Param("dout", "const T*", "gradient of out"),
        Param("dlse", "const float*", "gradient of the LSE, [batch, heads_q, seqlen_q]; null: none"),
        Param("dq_sum", "float*", f"{_BLOCKS}[d]: unscaled dQ between K/V blocks, {_ORDER}"),
        Param("row_stats", "const float*", _STATISTICS),
        Param("dq", "T*", "gradient of q"),
        Param("dk", "T*", "gradient of k"),
        Param("dv", "T*", "gradient of v"),
    )
    fields = _of(pointers, ("q", "k", "v", "out", "dout", "dq", "dk", "dv"), (_HEADS_KV, *_COUNTS))
    return (*fields, *scales(plan.spec.problem))


def _of(
    pointers: tuple[Param, ...], tensors: tuple[str, ...], counts: tuple[Param, ...]
) -> tuple[Param, ...]:
    steps = (stride for tensor in tensors for stride in strides(tensor))
    return (*pointers, *steps, *counts, _SCALE)
