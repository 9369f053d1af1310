"""What `fagen.quantize_fp8` must compute, in plain PyTorch; works on any device."""

from __future__ import annotations

from functools import cache, reduce
from typing import Any

import torch
from torch import Tensor

from fagen.ops.layout import BATCH_ROW_HEAD
from fagen.ops.quantize import Quantized, Scale
from fagen.ops.quantize_launch import BLOCK_ROWS

SMALLEST_AMAX = 2.0**-64  # of what is quantised: smaller magnitudes count as this
LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}

_PI = 0x243F6A8885A308D313198A2E03707344A4093822299F31D0082EFA98EC4E6C89  # 256 bits of pi's fraction
_TWO = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
# First rows of the symmetric circulant matrices A, B, C, D of order m, of which Williamson's matrix of order
# 4 m is made (Duke Mathematical Journal 11, 1944): the sum of their squares is 4 m times the identity.
_WILLIAMSON = {
    3: ("+++", "+--", "+--", "+--"),
    5: ("++--+", "+-++-", "+----", "+----"),
    7: ("+++--++", "+++--++", "++-++-+", "+-+--+-"),
}


def quantize(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Scale = "head",
    hadamard: bool = False,
    dtype: torch.dtype = torch.float8_e4m3fn,
    v_transposed: bool = False,
    layout: str = "bshd",
) -> Quantized:
    """The same; `dtype` is the torch dtype of the results. The transform is exact, then rounded to fp32."""
    _, row, head = BATCH_ROW_HEAD[layout]
    group = q.shape[head] // k.shape[head]
    results, descales = [], []
    for name, x in (("q", q), ("k", k), ("v", v)):
        x = x.transpose(row, head) if layout == "bshd" else x  # to batch, heads, rows, head_dim
        x = transform(x) if hadamard and name != "v" else x.float()
        amax = magnitudes(x, scale, group if name == "q" else 1).clamp_min(SMALLEST_AMAX)
        if scale == "block":
            amax = power_of_two(amax / LARGEST[dtype]) * LARGEST[dtype]
        # Of a number and a tensor torch multiplies one by the other's reciprocal, which rounds twice.
        largest = torch.full_like(amax, LARGEST[dtype])
        factor = largest / amax
        x = (x * spread(factor, x)).clamp(-LARGEST[dtype], LARGEST[dtype]).to(dtype)
        if name == "v" and v_transposed:
            x = x.transpose(2, 3)
        elif layout == "bshd":
            x = x.transpose(1, 2)
        results.append(x)
        descales.append(amax / largest)
    return Quantized(*results, *descales)


def transform(x: Tensor) -> Tensor:
    """Rows with some signs changed, times the Hadamard matrix, divided by its norm; fp32."""
    dim = x.shape[-1]
    return (x.double() * signs(dim).to(x.device) @ hadamard_matrix(dim).T.to(x.device)).float() * _norm(dim)


def signs(dim: int) -> Tensor:
    """-1 for each column of `dim` that changes its sign, else 1: by 32-bit words of pi, lowest bits first."""
    bits = [_PI >> 32 * (7 - column // 32) + column % 32 & 1 for column in range(dim)]
    return torch.tensor([-1.0 if bit else 1.0 for bit in bits], dtype=torch.float64)


@cache
def hadamard_matrix(dim: int) -> Tensor:
    """Of +1 and -1, with orthogonal rows, fp64; `dim` is a multiple of 32 up to 256.

    A Kronecker product over the parts of a column's number, 8 * (4 * (m * p + i) + lane) + 4 * half + j,
    where m is the odd part of dim: of Sylvester's matrices, and for (j, i), if m is not 1, Williamson's.
    """
    power = (dim & -dim) // 32
    odd = dim // 32 // power
    of_i_and_j = _sylvester(4).view(1, 1, 4, 4) if odd == 1 else _williamson(odd)
    parts = {"pP": _sylvester(power), "iIjJ": of_i_and_j, "lL": _sylvester(4), "hH": _sylvester(2)}
    return torch.einsum(f"{','.join(parts)}->pilhjPILHJ", *parts.values()).reshape(dim, dim)


def magnitudes(x: Tensor, scale: Scale, group: int = 1) -> Tensor:
    """The largest ones that share a scale, fp32: [1], [batch, heads / group] or [batch, heads, blocks].

    x is [batch, heads, rows, head_dim]; of its NaNs there is no magnitude.
    """
    x = x.abs().nan_to_num(nan=0.0, posinf=torch.inf)
    if scale == "tensor":
        return x.amax().view(1)
    if scale == "head":
        return x.unflatten(1, (-1, group)).amax((2, 3, 4))
    blocks = [block.amax((2, 3)) for block in x.split(BLOCK_ROWS, 2)]
    return torch.stack(blocks, 2)


def power_of_two(x: Tensor) -> Tensor:
    """The least one from `x` on; x is positive, fp32, not subnormal."""
    return (x.view(torch.int32) + 0x7FFFFF & 0x7F800000).view(torch.float32)


def spread(scales: Tensor, like: Tensor) -> Tensor:
    """For each row of `like`, [batch, heads, rows, head_dim], its own: [batch, heads, rows, 1] or [1]."""
    if scales.dim() == 1:
        return scales
    if scales.dim() == 2:
        return scales.repeat_interleave(like.shape[1] // scales.shape[1], 1)[..., None, None]
    return scales.repeat_interleave(BLOCK_ROWS, 2)[:, :, : like.shape[2], None]


def dequantize(x: Tensor, descale: Tensor, layout: str = "bshd") -> Tensor:
    """What 8-bit `x`, not transposed, stands for, fp32, in its layout."""
    if layout == "bshd":
        x = x.transpose(1, 2)
    x = x.float() * spread(descale, x)
    return x.transpose(1, 2) if layout == "bshd" else x


def _norm(dim: int) -> float:
    return torch.tensor(dim**-0.5, dtype=torch.float32).item()


def _sylvester(order: int) -> Tensor:
    """The Hadamard matrix of a power of two."""
    return reduce(torch.kron, [_TWO] * (order.bit_length() - 1), torch.ones(1, 1, dtype=torch.float64))


def _williamson(m: int) -> Tensor:
    """[i, I, j, J] for entry (j * m + i, J * m + I) of the matrix of order 4 m."""

    def circulant(signs: str) -> Tensor:
        first: list[Any] = [1.0 if sign == "+" else -1.0 for sign in signs]
        return torch.tensor([[first[(j - i) % m] for j in range(m)] for i in range(m)], dtype=torch.float64)

    a, b, c, d = map(circulant, _WILLIAMSON[m])
    rows = ((a, b, c, d), (-b, a, -d, c), (-c, d, a, -b), (-d, -c, b, a))
    return torch.stack([torch.stack(row) for row in rows]).permute(2, 3, 0, 1)
