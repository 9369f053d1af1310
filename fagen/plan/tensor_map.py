"""What a TMA tensor map says, and what it may say; the runtime and the emulator each encode it their way.

Source: CUDA driver API, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fagen.errors import LaunchError

BYTES = 128  # of an encoded map
ELEMENT_BYTES = {"e4m3": 1, "e5m2": 1, "fp16": 2, "bf16": 2, "fp32": 4}
SWIZZLES = (0, 32, 64, 128)  # span in bytes; 0: none


@dataclass(frozen=True)
class TensorMap:
    """A tensor of rank 1 to 5 in global memory, and the box of it that one TMA instruction moves."""

    dtype: str  # a key of ELEMENT_BYTES
    dims: tuple[int, ...]  # elements, innermost first
    strides: tuple[int, ...]  # bytes between neighbours along dims[1:]; innermost elements are adjacent
    box: tuple[int, ...]  # elements, innermost first
    swizzle: int = 0  # a member of SWIZZLES; its span is then one row of the box

    @property
    def box_bytes(self) -> int:
        """Bytes that a box takes in shared memory, and that one load completes on its mbarrier."""
        return math.prod(self.box) * ELEMENT_BYTES[self.dtype]

    def check(self, address: int) -> None:
        """Raise LaunchError for what the hardware cannot do, with the tensor at `address`."""
        if fault := next(self._faults(address), None):
            raise LaunchError(f"tensor map of {self.dtype} {list(self.dims)}: {fault}")

    def _faults(self, address: int) -> Iterator[str]:
        rank, row = len(self.dims), self.box[0] * ELEMENT_BYTES[self.dtype] if self.box else 0
        if not 1 <= rank <= 5:
            yield f"rank is {rank}; allowed: 1 to 5"
        if len(self.strides) != rank - 1 or len(self.box) != rank:
            yield f"strides {list(self.strides)} and box {list(self.box)} do not fit rank {rank}"
        if address % 16:
            yield f"address is {address:#x}; allowed: multiples of 16"
        if bad := [n for n in self.dims if not 1 <= n <= 2**31]:
            yield f"a dimension is {bad[0]}; allowed: 1 to 2**31"
        if bad := [n for n in self.strides if n % 16 or not 0 <= n < 2**40]:
            yield f"a stride is {bad[0]} bytes; allowed: multiples of 16 below 2**40"
        if bad := [n for n in self.box if not 1 <= n <= 256]:
            yield f"a side of the box is {bad[0]}; allowed: 1 to 256"
        if row % 16:
            yield f"a row of the box has {row} bytes; allowed: multiples of 16"
        if self.swizzle not in SWIZZLES:
            yield f"swizzle is {self.swizzle}; allowed: {', '.join(map(str, SWIZZLES))}"
        if self.swizzle and row != self.swizzle:
            yield f"a row of the box has {row} bytes; allowed with this swizzle: {self.swizzle}"
