"""The forward kernel's one argument, field by field: the template prints it as a struct, the launch packs it.

Kept in one table so that device and host cannot disagree about it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Param:
    """A field of the kernel's parameter struct."""

    name: str
    ctype: str  # "T*", "float*", "int64_t", "int32_t", "float"; T is the element type
    meaning: str


_STRIDES = tuple(
    Param(f"{tensor}_{axis}_stride", "int64_t", f"elements between neighbours of {tensor} along {axis}")
    for tensor in ("q", "k", "v", "out")
    for axis in ("batch", "row", "head")
)

FORWARD: tuple[Param, ...] = (
    Param("q", "const T*", "queries"),
    Param("k", "const T*", "keys"),
    Param("v", "const T*", "values"),
    Param("out", "T*", "output"),
    Param("lse", "float*", "natural-log sum of exp, [batch, heads_q, seqlen_q]; null: not wanted"),
    *_STRIDES,
    Param("batch", "int32_t", "sequences"),
    Param("heads_q", "int32_t", "query heads"),
    Param("heads_per_kv", "int32_t", "query heads that share one K/V head"),
    Param("seqlen_q", "int32_t", "queries per sequence"),
    Param("seqlen_k", "int32_t", "keys per sequence"),
    Param("q_tiles", "int32_t", "ceil(seqlen_q / Br)"),
    Param("heads_in_l2", "int32_t", "(batch, head) pairs run side by side, so that their K and V stay in L2"),
    Param("scale_log2", "float", "softmax scale * log2(e)"),
)

POINTERS = 5  # the leading fields that change with every call

_CODES = {"int64_t": "q", "int32_t": "i", "float": "f"}


def struct_format(params: tuple[Param, ...] = FORWARD) -> str:
    """`struct` format of the parameter block, with C alignment (every field is naturally aligned here)."""
    return "@" + "".join("P" if p.ctype.endswith("*") else _CODES[p.ctype] for p in params)


def struct_bytes(params: tuple[Param, ...] = FORWARD) -> int:
    """Size of the parameter block in bytes."""
    return struct.calcsize(struct_format(params))
