"""`fagen.quantize_fp8`: 16-bit q, k and v to 8 bits with descales, as the ops of FP8 specs take them.

By way of a torch op, so that traced graphs keep it.
"""

from __future__ import annotations

import reprlib
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from fagen.errors import ArgumentError
from fagen.hw.dtypes import DTYPES
from fagen.ops.checks import Device, check_are_tensors, check_memory, check_tensors
from fagen.ops.layout import BATCH_ROW_HEAD
from fagen.ops.quantize_launch import Options, Quantize, descale_sizes, out_sizes
from fagen.ops.register import define, refuse_gradients
from fagen.plan.quantize import HEAD_DIMS
from fagen.spec.model import Problem

Scale = Literal["head", "block", "tensor"]
Dtype = Literal["e4m3", "e5m2"]
Layout = Literal["bshd", "bhsd"]

_NAME = "_quantize_fp8"  # of no spec: theirs start with a letter
_SCHEMA = (
    f"{_NAME}(Tensor q, Tensor k, Tensor v, str scale, bool hadamard, str dtype, bool v_transposed, "
    "str layout) -> (Tensor q8, Tensor k8, Tensor v8, Tensor q_descale, Tensor k_descale, Tensor v_descale)"
)
_DTYPES_IN = {getattr(torch, DTYPES[name].torch): name for name in ("fp16", "bf16")}


class Quantized(NamedTuple):
    """What an op of an FP8 spec takes, by these names: `attention(**quantized._asdict())`."""

    q: Tensor
    k: Tensor
    v: Tensor
    q_descale: Tensor
    k_descale: Tensor
    v_descale: Tensor


def quantize_fp8(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Scale = "head",
    hadamard: bool = False,
    dtype: Dtype = "e4m3",
    v_transposed: bool = False,
    layout: Layout = "bshd",
) -> Quantized:
    """q, k and v rounded to 8 bits, and the fp32 descales that they are to be multiplied by.

    q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_k, heads_kv, head_dim] and
    v [batch, seqlen_k, heads_kv, head_dim_v] in that `layout`, torch.float16 or torch.bfloat16, rows 16-byte
    aligned and contiguous, head_dim and head_dim_v multiples of 32 up to 256. A descale is the largest
    magnitude of what it is for, divided by the largest value of `dtype` (448, e5m2: 57344); magnitudes below
    2^-64 count as 2^-64, so zeros have a descale, too. By `scale` there is one for

    - "block": each 128 rows of a head; [batch, heads_q, ceil(seqlen_q / 128)] and
      [batch, heads_kv, ceil(seqlen_k / 128)]. Each tensor is read once. These are rounded up to powers of
      two, so that an op may multiply P by those of v without another rounding.
    - "head": each K/V head and the query heads that share it; [batch, heads_kv]. Each tensor is read twice.
    - "tensor": each tensor; [1]. Likewise.

    With `hadamard` the rows of q and k are first multiplied by one orthogonal matrix, a Hadamard matrix after
    fixed changes of sign (see quantize/hadamard.cuh and signs.cuh): q k^T stays what it is, while outliers
    are spread over all columns. v is not. With `v_transposed` v becomes [batch, heads_kv, head_dim_v,
    seqlen_k], keys adjacent, each row of them at a multiple of 16 bytes, as problem.v_transposed has it.
    NaN stays NaN; an infinity leaves nothing of what shares its descale.

    Runs on the current stream of the tensors' device and never waits; of CPU tensors in the emulator. Not
    differentiable. Raises ArgumentError before anything runs; PlanError, CompileError or LaunchError at the
    first call of a kind on a device, which builds the kernels.
    """
    for name, value, allowed in (
        ("scale", scale, get_args(Scale)),
        ("dtype", dtype, get_args(Dtype)),
        ("layout", layout, get_args(Layout)),
        ("hadamard", hadamard, (False, True)),
        ("v_transposed", v_transposed, (False, True)),
    ):
        if not isinstance(value, type(allowed[0])) or value not in allowed:
            raise ArgumentError(f"{name}: is {reprlib.repr(value)}; allowed: {', '.join(map(repr, allowed))}")
    check_are_tensors(q, k, v)
    found = Quantized(*_OP(q, k, v, scale, hadamard, dtype, v_transposed, layout))
    return found._replace(v=found.v[..., : v.shape[1 if layout == "bshd" else 2]]) if v_transposed else found


def _check(q: Tensor, k: Tensor, v: Tensor, layout: str) -> None:
    """What can be seen of fake tensors, too. Raises ArgumentError."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype not in _DTYPES_IN:
            raise ArgumentError(f"{name}: is {x.dtype}; allowed: {', '.join(map(str, _DTYPES_IN))}")
        if x.dim() != 4:
            raise ArgumentError(
                f"{name}: has shape {tuple(x.shape)}; allowed: 4 dimensions (layout: {layout})"
            )
        if x.shape[-1] not in HEAD_DIMS:
            raise ArgumentError(
                f"{name}: has shape {tuple(x.shape)}, last dimension {x.shape[-1]}; allowed: multiples of "
                f"{HEAD_DIMS[0]} up to {HEAD_DIMS[-1]}"
            )
    device: Device = "emu" if q.device.type == "cpu" else None
    check_tensors(_problem(q.dtype, int(q.shape[-1]), int(v.shape[-1]), layout), q, k, v, None, device)


@lru_cache
def _problem(dtype: torch.dtype, head_dim: int, head_dim_v: int, layout: Any) -> Problem:
    """Of tensors such as these; ops check theirs by it."""
    return Problem(dtype=_DTYPES_IN[dtype], head_dim=head_dim, head_dim_v=head_dim_v, layout=layout)  # type: ignore[arg-type]


def _options(
    q: Tensor, k: Tensor, scale: str, hadamard: bool, dtype: str, v_transposed: bool, layout: str
) -> tuple[Options, Options, Options]:
    """Of q, k and v."""
    heads = BATCH_ROW_HEAD[layout][2]
    group = q.shape[heads] // k.shape[heads] if k.shape[heads] else 1
    of_k = Options(scale, dtype, layout, hadamard)
    return of_k._replace(group=group), of_k, Options(scale, dtype, layout, transposed=v_transposed)


_run = Quantize()


def _real(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, ...]:
    def check() -> None:
        _check(q, k, v, given[-1])
        check_memory(_problem(q.dtype, q.shape[-1], v.shape[-1], given[-1]), q, k, v)

    return _run((q, k, v), given, check, lambda: _options(q, k, *given))


def _fake(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, ...]:
    _check(q, k, v, given[-1])
    tensors, options = (q, k, v), _options(q, k, *given)
    both = tuple(zip(tensors, options, strict=True))
    return (
        *(x.new_empty(out_sizes(x, own), dtype=own.torch_dtype) for x, own in both),
        *(x.new_empty(descale_sizes(x, own), dtype=torch.float32) for x, own in both),
    )


define(_SCHEMA, _real, _fake)
refuse_gradients(
    "_quantize_fp8",
    "q, k, v: require grad, but quantize_fp8 has no backward; call it under torch.no_grad() or on "
    "detached tensors",
)
_OP = torch.ops.fagen._quantize_fp8.default
