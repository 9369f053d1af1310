"""A kernel's one argument, field by field: the template prints it as a struct, the launch packs it.

Kept in one place so that device and host cannot disagree about it. The fields of v2's forward are here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fagen.plan.ir import Plan
from fagen.plan.tensor_map import BYTES
from fagen.spec.model import Problem

# What a call brings, in the order that the launchers of a pass take it; 0 for what there is not.
FORWARD: tuple[str, ...] = (
    "q",
    "k",
    "v",
    "out",
    "lse",
    "o_sum",
    "row_stats",
    "counters",
    "seed",
    "cu_seqlens_q",
    "cu_seqlens_k",
    "q_descale",
    "k_descale",
    "v_descale",
)
BACKWARD: tuple[str, ...] = (
    "q",
    "k",
    "v",
    "out",
    "lse",
    "dout",
    "dlse",
    "dq",
    "dk",
    "dv",
    "dq_sum",
    "row_stats",
    "turns",
    "seed",
    "cu_seqlens_q",
    "cu_seqlens_k",
)

MAP = "fagen::ptx::TensorMap"
MAP_ALIGNMENT = 64

_NATURAL = {  # code of the struct module, alignment
    MAP: (f"{BYTES}s", MAP_ALIGNMENT),
    "int64_t": ("q", 8),
    "int32_t": ("i", 4),
    "uint32_t": ("I", 4),
    "float": ("f", 4),
}

Value = int | float | bytes


@dataclass(frozen=True)
class Param:
    """A field of the kernel's parameter struct."""

    name: str
    ctype: str  # a pointer, "const T*"; MAP, "int64_t", "int32_t", ...; T is the element type
    meaning: str

    @property
    def is_pointer(self) -> bool:
        """Whether it is an address of the pass, with its name."""
        return self.ctype.endswith("*")

    def is_map_of(self, tensor: str) -> bool:
        """Whether it is the tensor map of that tensor."""
        return self.name == f"{tensor}_map"

    def leads_to(self, tensor: str) -> bool:
        """Whether the kernel finds that address of the pass through it."""
        return self.is_map_of(tensor) or (self.is_pointer and self.name == tensor)

    @property
    def is_written(self) -> bool:
        """Whether the kernel writes where it leads."""
        return self.is_map_of("out") or (self.is_pointer and not self.ctype.startswith("const"))

    @property
    def natural(self) -> tuple[str, int]:
        """Its code in Python's struct module, and its alignment in bytes."""
        return ("P", 8) if self.is_pointer else _NATURAL[self.ctype]


LSE = Param("lse", "float*", "natural-log sum of exp, [batch, heads_q, seqlen_q]; null: not wanted")
_SCALE = Param("scale_log2", "float", "softmax scale * log2(e)")
_CAPPED_SCALE = Param("scale_log2", "float", "problem.softcap * log2(e)")
_SOFTCAP_SCALE = Param("softcap_scale", "float", "2 * log2(e) * softmax scale / problem.softcap")
SEED = Param("seed", "const uint64_t*", "[1]: the key of this call's dropout")
_DROPOUT = (
    Param("dropout_threshold", "uint32_t", "of 2^16: random numbers below it drop their element"),
    Param("dropout_rescale", "float", "1 / (1 - dropout_p)"),
)
COUNTS = (
    Param("batch", "int32_t", "sequences"),
    Param("heads_q", "int32_t", "query heads"),
    Param("heads_per_kv", "int32_t", "query heads that share one K/V head"),
    Param("seqlen_q", "int32_t", "queries per sequence"),
    Param("seqlen_k", "int32_t", "keys per sequence"),
    Param("q_tiles", "int32_t", "ceil(seqlen_q / Br)"),
    Param("heads_abreast", "int32_t", "(batch, head) pairs that sched/longest_first.cuh runs side by side"),
)
# Where they mean something else.
_PACKED_TILES = {"q_tiles": "Q tiles of the longest sequence"}
PACKED = {
    "lse": "natural-log sum of exp, [heads_q, tokens_q]; null: not wanted",
    "seqlen_q": "queries of the longest sequence",
    "seqlen_k": "keys of the longest sequence",
}

OUT = Param("out", "T*", "output")
_TENSORS = (
    Param("q", "const T*", "queries"),
    Param("k", "const T*", "keys"),
    Param("v", "const T*", "values"),
    OUT,
)
OFFSETS = (
    Param("cu_seqlens_q", "const int32_t*", "[batch + 1]: where each sequence's queries start, and the end"),
    Param("cu_seqlens_k", "const int32_t*", "[batch + 1]: where each sequence's keys start, and the end"),
)
TOKENS_Q = Param("tokens_q", "int32_t", "rows of q and out")


def forward(plan: Plan) -> tuple[Param, ...]:
    """The fields of the struct that v2's forward takes: pointers, then numbers."""
    problem = plan.spec.problem
    is_packed = problem.layout == "thd"
    fields = (
        *_TENSORS,
        LSE,
        *(OFFSETS if is_packed else ()),
        *((SEED,) if problem.dropout else ()),
        *(stride for tensor in ("q", "k", "v", "out") for stride in strides(tensor)),
        *COUNTS,
        *((TOKENS_Q,) if is_packed else ()),
        *scales(problem),
    )
    return meaning(fields, _PACKED_TILES | PACKED if is_packed else {})


def scales(problem: Problem) -> tuple[Param, ...]:
    """What scores and probabilities are multiplied by on the way."""
    return (
        *((_SCALE,) if problem.softcap is None else (_CAPPED_SCALE, _SOFTCAP_SCALE)),
        *(_DROPOUT if problem.dropout else ()),
    )


def strides(tensor: str, axes: tuple[str, ...] = ("batch", "row", "head")) -> tuple[Param, ...]:
    """A tensor's strides."""
    return tuple(
        Param(f"{tensor}_{axis}_stride", "int64_t", f"elements between neighbours of {tensor} along {axis}")
        for axis in axes
    )


def meaning(params: tuple[Param, ...], meanings: Mapping[str, str]) -> tuple[Param, ...]:
    """The fields, with the meanings of those that mean something else here."""
    return tuple(replace(param, meaning=meanings.get(param.name, param.meaning)) for param in params)


def offsets(params: tuple[Param, ...]) -> dict[str, int]:
    """Where each field starts in the struct, in bytes, as C lays it out."""
    at, found = 0, {}
    for param in params:
        code, align = param.natural
        found[param.name] = at + -at % align
        at = found[param.name] + struct.calcsize(code)
    return found


def struct_bytes(params: tuple[Param, ...]) -> int:
    """Size of the struct in bytes: a multiple of its alignment."""
    end = offsets(params)[params[-1].name] + struct.calcsize(params[-1].natural[0])
    return end + -end % max(param.natural[1] for param in params)


def pack(params: tuple[Param, ...], values: Mapping[str, Value]) -> bytes:
    """The struct with these values, by the names of its fields."""
    block = bytearray(struct_bytes(params))
    for param, at in zip(params, offsets(params).values(), strict=True):
        struct.pack_into(param.natural[0], block, at, values[param.name])
    return bytes(block)
