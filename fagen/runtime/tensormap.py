"""TensorMap → the 128 bytes that TMA reads."""

from __future__ import annotations

import functools
import struct

import cuda.bindings.driver as driver

from fagen.plan.tensor_map import TensorMap
from fagen.runtime.context import value

_TYPES = {  # TMA moves 8-bit floats as bytes
    "e4m3": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    "e5m2": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    "fp16": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    "bf16": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    "fp32": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
}
_SWIZZLES = {
    0: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
    32: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
    64: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
    128: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
}


@functools.lru_cache(maxsize=1024)
def encode(tensor_map: TensorMap, address: int) -> bytes:
    """Encode the map of a tensor at device address `address`.

    Elements outside the tensor are read as zeros. Results are kept: encoding takes microseconds.
    Raises LaunchError for a map that TMA cannot take.
    """
    tensor_map.check(address)
    rank = len(tensor_map.dims)
    encoded = value(
        "encoding a tensor map",
        driver.cuTensorMapEncodeTiled(
            _TYPES[tensor_map.dtype],
            rank,
            address,
            [driver.cuuint64_t(n) for n in tensor_map.dims],
            [driver.cuuint64_t(n) for n in (*tensor_map.strides, 0)],  # one more than read: rank 1 has none
            [driver.cuuint32_t(n) for n in tensor_map.box],
            [driver.cuuint32_t(1)] * rank,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            _SWIZZLES[tensor_map.swizzle],
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ),
    )
    return struct.pack("@16Q", *map(int, encoded.opaque))


class EncodedMap:
    """An encoded map in memory of the caller's, 64-byte aligned, that follows its tensor around."""

    def __init__(self, at: int):
        """The map is at host address `at`."""
        self._map = driver.CUtensorMap(_ptr=at)
        self._tensor: int | None = None  # where the map was last moved to

    def move(self, tensor: int) -> None:
        """Let the map describe the tensor at device address `tensor`, in place. Raises LaunchError."""
        if tensor != self._tensor:
            value("moving a tensor map", driver.cuTensorMapReplaceAddress(self._map, tensor))
            self._tensor = tensor
