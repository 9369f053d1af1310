"""The argument of v3's forward, field by field, as `params.py` has that of v2's."""

from __future__ import annotations

from dataclasses import replace

from fagen.plan import descales
from fagen.plan.ir import Plan
from fagen.plan.params import (
    COUNTS,
    LSE,
    MAP,
    OFFSETS,
    OUT,
    PACKED,
    TOKENS_Q,
    Param,
    meaning,
    scales,
    strides,
)

_MAPS = (Param("q_map", MAP, "queries"), Param("k_map", MAP, "keys"), Param("v_map", MAP, "values"))
_K = Param("k", "const T*", "keys, read again where exp2 has lost scores")
_OUT_MAP = Param("out_map", MAP, "output")
_COUNTERS = Param("counters", "uint32_t*", "[2], zeros: the next work item, and the CTAs that are done")
_GROUP = Param("group_log2", "int32_t", "log2 of the query heads in a group")
# Where fields mean something else.
_TILES = {"q_tiles": "Q tiles of the longest sequence, whole clusters of them"}
_PACK_GQA = {
    "lse": "natural-log sum of exp, [batch, query heads, seqlen_q]; null: not wanted",
    "heads_q": "K/V heads, each with a group of query heads",
    "heads_per_kv": "1: heads_q are K/V heads",
}


def forward(plan: Plan) -> tuple[Param, ...]:
    """The fields of the struct that the plan's kernel takes: maps, then pointers, then numbers."""
    problem, by_tma = plan.spec.problem, plan.tiling.own_o  # O leaves by TMA; else through its strides
    is_packed = problem.layout == "thd"
    again = plan.tiling.releases_k_early and plan.tiling.growth is not None
    axes = ("row", "head") if is_packed else ("batch", "row", "head")
    out = replace(OUT, ctype="Out*") if problem.is_fp8 else OUT
    fields = (
        *((*_MAPS, _OUT_MAP) if by_tma else _MAPS),
        *((_K,) if again else ()),
        LSE,
        *((_COUNTERS,) if plan.tiling.has_counters else ()),
        *(OFFSETS if is_packed else ()),
        *((out,) if is_packed or not by_tma else ()),  # rows that are of no sequence leave without TMA
        *descales.pointers(problem),
        *(strides("k", axes) if again else ()),
        *(() if by_tma else strides("out", axes)),
        *descales.strides(problem),
        *COUNTS,
        *((TOKENS_Q,) if is_packed else ()),
        *((_GROUP,) if plan.tiling.pack_gqa else ()),
        *scales(problem),
    )
    return meaning(
        fields, _TILES | (PACKED if is_packed else {}) | (_PACK_GQA if plan.tiling.pack_gqa else {})
    )
