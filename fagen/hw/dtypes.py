"""Element types: one row each, with the name that every floor uses for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DType:
    """An element type: spec name, size in bytes, CUDA C++ type, torch name."""

    name: str
    bytes: int
    cuda: str
    torch: str


DTYPES: dict[str, DType] = {
    t.name: t
    for t in (
        DType("fp16", 2, "__half", "float16"),
        DType("bf16", 2, "__nv_bfloat16", "bfloat16"),
        DType("e4m3", 1, "fagen::e4m3", "float8_e4m3fn"),
        DType("e5m2", 1, "fagen::e5m2", "float8_e5m2"),
    )
}
