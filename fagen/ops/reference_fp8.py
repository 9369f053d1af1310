"""8-bit q, k and v of a problem, and what they stand for, in plain PyTorch.

What a kernel must compute is `reference.attention` of what `dequantized` gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from fagen.hw.dtypes import DTYPES
from fagen.ops.descales import Descales
from fagen.ops.quantize import Scale
from fagen.ops.reference_quantize import dequantize, quantize
from fagen.spec.model import Problem


def dequantized(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, descales: Descales, offsets: Sequence[Tensor] = ()
) -> tuple[Tensor, Tensor, Tensor]:
    """What an op's q, k and v stand for: themselves times their descales, in fp32, each in problem.layout.

    `offsets` are cu_seqlens_q and cu_seqlens_k of layout thd.
    """
    if problem.layout == "thd":
        of_tokens = zip((q, k, v), descales, (offsets[0], offsets[1], offsets[1]), strict=True)
        q, k, v = (_tokens(k.shape[1], *each) for each in of_tokens)
        return q, k, v
    if problem.v_transposed:
        v = v.mT if problem.layout == "bhsd" else v.permute(0, 3, 1, 2)
    q, k, v = (dequantize(x, own, problem.layout) for x, own in zip((q, k, v), descales, strict=True))
    return q, k, v


def quantized(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, batch: int, scale: Scale | None = None
) -> tuple[tuple[Tensor, Tensor, Tensor], Descales]:
    """The 8-bit q, k and v nearest to these, which are in problem.layout, and their descales.

    There is a descale as `scale` says, see `fagen.quantize_fp8`, if left out as problem.fp8.scale does.
    `batch` sequences are packed, all of one length. v comes transposed where the problem has it so, its rows
    16-byte aligned.
    """
    dtype = getattr(torch, DTYPES[problem.dtype].torch)
    scale = scale or ("block" if problem.scales_blocks else "head")
    if problem.layout == "thd":
        q, k, v = (x.unflatten(0, (batch, -1)) for x in (q, k, v))
    layout = "bhsd" if problem.layout == "bhsd" else "bshd"
    found = quantize(q, k, v, scale, dtype=dtype, v_transposed=problem.v_transposed, layout=layout)
    q, k, v = (x.contiguous() for x in found[:3])
    if problem.v_transposed:
        keys = v.shape[-1]
        v = pad(v.view(torch.uint8), (0, -keys % 16)).view(dtype)[..., :keys]
    if problem.layout == "thd":
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    return (q, k, v), Descales(*found[3:])


def _tokens(heads_kv: int, x: Tensor, descale: Tensor, offsets: Tensor) -> Tensor:
    """Of x [tokens, heads, columns]; rows of no sequence stay what they are."""
    descale = descale.expand(len(offsets) - 1, heads_kv)
    by_token = descale.repeat_interleave(offsets.diff(), dim=0)
    by_token = pad(by_token, (0, 0, 0, x.shape[0] - by_token.shape[0]), value=1.0)
    return x.float() * by_token.repeat_interleave(x.shape[1] // heads_kv, dim=1).unsqueeze(-1)
