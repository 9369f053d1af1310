"""TensorMap → the 128 bytes that the emulated TMA reads, laid out as runtime/tma.hpp says."""

from __future__ import annotations

import struct

from fagen.plan.tensor_map import BYTES, SWIZZLES, TensorMap

_MARK = 0x7A3DF46E  # what no other 128 bytes start with
_TYPES = ("e4m3", "e5m2", "fp16", "bf16", "fp32")
_FORMAT = struct.Struct("=IBBBxQ5Q4Q5H")


def encode(tensor_map: TensorMap, address: int) -> bytes:
    """Encode the map of a tensor at host address `address`. Raises LaunchError for what TMA cannot take."""
    tensor_map.check(address)

    def padded(values: tuple[int, ...], length: int) -> tuple[int, ...]:
        return values + (1,) * (length - len(values))

    return _FORMAT.pack(
        _MARK,
        len(tensor_map.dims),
        _TYPES.index(tensor_map.dtype),
        SWIZZLES.index(tensor_map.swizzle),
        address,
        *padded(tensor_map.dims, 5),
        *padded(tensor_map.strides, 4),
        *padded(tensor_map.box, 5),
    ).ljust(BYTES, b"\0")
