"""The ISA's layouts in numpy: swizzled addresses, fragments, operands in shared memory.

Written from the PTX ISA's tables ("Matrix fragments", "Swizzling modes", "Matrix-descriptor"), not from the
emulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SWIZZLE_CODES = {0: 0, 128: 1, 64: 2, 32: 3}  # in a wgmma descriptor


def swizzled(address: np.ndarray, span: int) -> np.ndarray:
    """Where byte `address` of shared memory lies under a swizzle of `span` bytes (0: none)."""
    bits = {0: 0, 32: 1, 64: 2, 128: 3}[span]  # of the 16-byte chunk's number
    chunk, line = address // 16 % 8, address // 128
    return address - chunk * 16 + (chunk ^ line % (1 << bits)) * 16


def core_fragments(matrix: np.ndarray) -> np.ndarray:
    """A 16 x K matrix of bytes-wide elements as A fragments: [lane, register, element of the register]."""
    rows, k = matrix.shape
    assert rows == 16
    each = 4 // matrix.itemsize
    assert k == 8 * each
    lane = np.arange(32)[:, None, None]
    register = np.arange(4)[None, :, None]
    element = np.arange(each)[None, None, :]
    return matrix[lane // 4 + register % 2 * 8, register // 2 * 4 * each + lane % 4 * each + element]


def b_fragments(matrix: np.ndarray) -> np.ndarray:
    """A K x 8 matrix as B fragments: [lane, register, element of the register]."""
    k, columns = matrix.shape
    assert columns == 8
    each = 4 // matrix.itemsize
    assert k == 8 * each
    lane = np.arange(32)[:, None, None]
    register = np.arange(2)[None, :, None]
    element = np.arange(each)[None, None, :]
    return matrix[register * 4 * each + lane % 4 * each + element, lane // 4]


def accumulators(matrix: np.ndarray) -> np.ndarray:
    """A 16 x N matrix as accumulators: [lane, register]; register 4j+i is i of the j-th eight columns."""
    lane = np.arange(32)[:, None]
    register = np.arange(matrix.shape[1] // 2)[None, :]
    return matrix[lane // 4 + register // 2 % 2 * 8, register // 4 * 8 + lane % 4 * 2 + register % 2]


def warpgroup(function: Callable[[np.ndarray], np.ndarray], matrix: np.ndarray) -> np.ndarray:
    """What the threads of four warps hold, [thread, ...], from what one warp holds of 16 rows."""
    return np.concatenate([function(matrix[16 * warp : 16 * warp + 16]) for warp in range(4)])


@dataclass(frozen=True)
class Operand:
    """A matrix [rows, k] in shared memory, and what a wgmma descriptor says of it."""

    image: np.ndarray  # bytes
    leading: int
    stride: int
    swizzle: int
    step: int  # bytes from the K of one instruction to that of the next

    def fields(self, start: int) -> list[int]:
        """As wgmma.cu has them; `start` is the operand's place, a multiple of 1024."""
        return [start, self.leading, self.stride, SWIZZLE_CODES[self.swizzle], self.step]


def operand(matrix: np.ndarray, swizzle: int, mn_major: bool, dense_along_k: bool) -> Operand:
    """Lay a matrix [rows, k] out in atoms of 8 lines of the swizzle's span (16 bytes: none).

    A line runs along K, or along rows if `mn_major`. `dense_along_k`: atoms that are neighbours along K are
    neighbours in memory, else those along rows are. K-major and swizzled, a line holds all of K.
    """
    size = matrix.itemsize
    span = swizzle or 16
    lines, along = (matrix.T, matrix.shape[0]) if mn_major else (matrix, matrix.shape[1])
    spans, atoms = -(-along * size // span), -(-lines.shape[0] // 8)  # atoms: along the other dimension
    assert mn_major or not swizzle or spans == 1
    atom = 8 * span
    spans_first = dense_along_k != mn_major  # which of both directions is dense
    next_span, next_atom = (atom, atom * spans) if spans_first else (atom * atoms, atom)
    line, column = np.arange(lines.shape[0])[:, None], np.arange(lines.shape[1])[None, :]
    byte = column * size
    address = byte // span * next_span + line // 8 * next_atom + line % 8 * span + byte % span
    address = swizzled(address[..., None] + np.arange(size), swizzle)
    image = np.zeros(spans * atoms * atom, np.uint8)
    image[address] = np.ascontiguousarray(lines).view(np.uint8).reshape(*lines.shape, size)
    k_bytes = 32  # of one instruction, along K
    if mn_major:
        step = k_bytes // size // 8 * next_atom
        leading, stride = (next_span, next_atom) if swizzle else (next_atom, next_span)
    else:
        step = k_bytes if swizzle else k_bytes // 16 * next_span
        leading, stride = (0 if swizzle else next_span), next_atom
    return Operand(image, leading, stride, swizzle, step)


# 8-bit floating point.

FP8 = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15)}  # exponent bits, mantissa bits, bias


def fp8_values(dtype: str) -> np.ndarray:
    """The value of every byte."""
    exponent_bits, mantissa_bits, bias = FP8[dtype]
    byte = np.arange(256)
    sign = np.where(byte & 0x80, -1.0, 1.0)
    exponent = byte >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = (byte & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
    value = np.where(exponent == 0, mantissa * 2.0 ** (1 - bias), (1 + mantissa) * 2.0 ** (exponent - bias))
    if dtype == "e4m3":
        value[byte & 0x7F == 0x7F] = np.nan
    else:
        value[(exponent == 31) & (mantissa == 0)] = np.inf
        value[(exponent == 31) & (mantissa != 0)] = np.nan
    return sign * value


def encoded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers that the type holds exactly, as its bits."""
    if dtype == "fp16":
        bits = values.astype(np.float16).view(np.uint16)
    elif dtype == "bf16":
        bits = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif dtype == "fp32":
        bits = values.astype(np.float32).view(np.uint32)
    else:
        table = fp8_values(dtype)
        finite = np.flatnonzero(np.isfinite(table))
        order = finite[np.argsort(table[finite], kind="stable")]
        bits = order[np.searchsorted(table[order], values)].astype(np.uint8)
    return bits
