"""What an op accepts: every argument that a user can get wrong is an ArgumentError before any kernel runs.

`check_tensors` and `check_tensor` look at what a fake tensor has too (so a traced graph fails while it is
traced), `check_memory` at strides and addresses, `check_scale` and `check_dropout` at numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fagen.errors import ArgumentError
from fagen.hw.dtypes import DTYPES
from fagen.ops.descales import Descales, check_descales
from fagen.ops.layout import Packing, axes, shape_of
from fagen.ops.packing import check_packing
from fagen.spec.model import Problem

ALIGNMENT = 16  # bytes that a row of q, k or v must start at a multiple of: the widest copy of one thread

# Where an op runs: in the emulator, on CPU tensors; None: on the GPU of its tensors, and on a machine without
# GPU in the emulator.
Device = Literal["emu"] | None


def torch_dtype(problem: Problem) -> torch.dtype:
    """The dtype of q, k and v."""
    return getattr(torch, DTYPES[problem.dtype].torch)


def out_dtype(problem: Problem) -> torch.dtype:
    """The dtype of out."""
    return getattr(torch, DTYPES[problem.dtype_out].torch)


def check_tensors(
    problem: Problem,
    q: Any,
    k: Any,
    v: Any,
    packing: Packing | None = None,
    device: Device = None,
    descales: Descales | None = None,
) -> None:
    """Type, device, dtype, rank and sizes of q, k, v, offsets and descales, which may be fake tensors.

    The op runs on `device`. Raises ArgumentError.
    """
    tensors = {"q": q, "k": k, "v": v}
    check_are_tensors(q, k, v)
    for name, x in tensors.items():
        if x.layout is not torch.strided:
            raise ArgumentError(f"{name}: has layout {x.layout}; allowed: torch.strided")
        if forward_ad.unpack_dual(x).tangent is not None:  # torch would drop it without a word
            raise ArgumentError(
                f"{name}: has a forward-mode gradient; allowed: none, ops compute no tangents"
            )
    _check_device(tensors, device)
    if any(x.dtype != torch_dtype(problem) for x in tensors.values()):
        found = ", ".join(f"{name} is {x.dtype}" for name, x in tensors.items())
        raise ArgumentError(
            f"dtype: {found}; allowed: {torch_dtype(problem)} for all three (problem.dtype: {problem.dtype})"
        )
    _check_sizes(problem, tensors)
    if packing is not None:
        check_packing(packing, q)
    if descales is not None:
        check_descales(problem, descales, shape_of(problem, q, k, packing), q)


def check_are_tensors(q: Any, k: Any, v: Any) -> None:
    """Raise ArgumentError for one that is none, or nested, which has no sizes."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise ArgumentError(f"{name}: is a {type(x).__name__}; allowed: a torch.Tensor")
        if x.is_nested:
            raise ArgumentError(
                f"{name}: is a nested tensor; allowed: one tensor (sequences of different lengths: layout "
                "thd)"
            )


def check_tensor(name: str, x: Any, sizes: Sequence[Any], dtype: torch.dtype, like: Tensor) -> None:
    """Type, layout, sizes and dtype of a tensor that must be on `like`'s device; it may be a fake tensor.

    Raises ArgumentError.
    """
    if not isinstance(x, Tensor) or x.layout is not torch.strided:
        found = f"has layout {x.layout}" if isinstance(x, Tensor) else f"is a {type(x).__name__}"
        raise ArgumentError(f"{name}: {found}; allowed: a torch.Tensor with layout torch.strided")
    if x.device != like.device:
        raise ArgumentError(f"{name}: is on {x.device}; allowed: {like.device}, as q")
    if x.dtype != dtype:
        raise ArgumentError(f"{name}: is {x.dtype}; allowed: {dtype}")
    if x.shape != torch.Size(sizes):
        raise ArgumentError(f"{name}: has shape {_shape(x)}; allowed: ({', '.join(map(str, sizes))})")


def check_memory(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> None:
    """Strides and addresses of tensors that passed `check_tensors`: every row is read 16 bytes at a time.

    Raises ArgumentError.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        found = _unreadable(problem, name, x)
        if found:
            raise ArgumentError(f"{name}: {found}")


def readable(problem: Problem, x: Tensor) -> Tensor:
    """`x` in the problem's layout, or a copy of it where `check_memory` would refuse it."""
    return x.clone(memory_format=torch.contiguous_format) if _unreadable(problem, "", x) else x


def check_scale(problem: Problem, scale: Any) -> float:
    """The softmax scale to use: 1/sqrt(head_dim) for None. Raises ArgumentError."""
    if scale is None:
        return problem.head_dim**-0.5
    if not isinstance(scale, Real):
        raise ArgumentError(f"scale: is a {type(scale).__name__}; allowed: a positive float, or None")
    value = float(scale)
    # The bounds keep scale * log2(e) a normal fp32 number.
    if not 1e-30 <= value <= 1e30:
        raise ArgumentError(f"scale: is {value}; allowed: from 1e-30 to 1e30, or None for 1/sqrt(head_dim)")
    return value


def check_dropout(problem: Problem, dropout_p: Any) -> float:
    """The share of probabilities to drop, by an op of `problem`. Raises ArgumentError."""
    value = check_share(dropout_p)
    if value and not problem.dropout:
        raise ArgumentError(f"dropout_p: is {value}; allowed: 0 (problem.dropout: false)")
    return value


def check_share(dropout_p: Any) -> float:
    """The share of probabilities to drop, by any op. Raises ArgumentError."""
    if not isinstance(dropout_p, Real):
        raise ArgumentError(f"dropout_p: is a {type(dropout_p).__name__}; allowed: a float from 0 to below 1")
    value = float(dropout_p)
    if not 0 <= value < 1:
        raise ArgumentError(f"dropout_p: is {value}; allowed: from 0 to below 1")
    return value


def _unreadable(problem: Problem, name: str, x: Tensor) -> str:
    """What keeps kernels from reading the rows of `x` 16 bytes at a time, and a remedy; empty: nothing."""
    if x.numel() == 0:
        return ""
    *strides, last = x.stride()
    if last != 1:
        return f"stride of its last dimension is {last}; allowed: 1 (use {name}.contiguous())"
    step = ALIGNMENT // x.element_size()
    names = axes(problem, name)
    remedy = f"use {name}.contiguous()" if names[-1] == "head_dim" else "leave room for such a number of keys"
    for axis, size, stride in zip(names, x.shape, strides, strict=False):
        if size > 1 and stride % step:
            return (
                f"stride of its {axis} dimension is {stride} elements; allowed: multiples of {step}, so that "
                f"every row starts {ALIGNMENT}-byte aligned ({remedy})"
            )
    if x.data_ptr() % ALIGNMENT:
        return (
            f"starts {x.data_ptr() % ALIGNMENT} bytes past a multiple of {ALIGNMENT}; allowed: "
            f"{ALIGNMENT}-byte aligned addresses (use {name}.clone())"
        )
    return ""


def _check_device(tensors: dict[str, Tensor], device: Device) -> None:
    for name, x in tensors.items():
        if device == "emu":
            if x.device.type != "cpu":
                raise ArgumentError(
                    f"{name}: is on {x.device}; allowed: the CPU, where the emulator runs (use {name}.cpu())"
                )
        elif x.device.type != "cuda" and (x.device.type != "cpu" or torch.cuda.is_available()):
            raise ArgumentError(
                f"{name}: is on {x.device}; allowed: CUDA devices (use {name}.cuda(), or load the op with "
                'device="emu", which runs its kernel on the CPU)'
            )
    if len({x.device for x in tensors.values()}) > 1:
        found = ", ".join(f"{name} is on {x.device}" for name, x in tensors.items())
        raise ArgumentError(f"device: {found}; allowed: the same device for all three")


def _check_sizes(problem: Problem, tensors: dict[str, Tensor]) -> None:
    named = {name: axes(problem, name) for name in tensors}
    read_as = f"({', '.join(named['q'])})"
    if problem.v_transposed:
        read_as += f", v as ({', '.join(named['v'])})"
    read_as += f" (problem.layout: {problem.layout})"
    for name, x in tensors.items():
        if x.dim() != len(named[name]):
            raise ArgumentError(
                f"{name}: has shape {_shape(x)}; allowed: {len(named[name])} dimensions, {read_as}"
            )
    sizes = {name: dict(zip(named[name], x.shape, strict=True)) for name, x in tensors.items()}
    for name, dim, key in (
        ("q", problem.head_dim, "head_dim"),
        ("k", problem.head_dim, "head_dim"),
        ("v", problem.dim_v, "head_dim" if problem.head_dim_v is None else "head_dim_v"),
    ):
        if (found := sizes[name]["head_dim"]) != dim:
            place = "last" if named[name][-1] == "head_dim" else "third"
            raise ArgumentError(
                f"{name}: has shape {_shape(tensors[name])}, {place} dimension {found}; "
                f"allowed: {dim} (problem.{key}), dimensions {read_as}"
            )

    def refuse(name: str, what: str) -> None:
        found = ", ".join(f"{key} {_shape(x)}" for key, x in tensors.items())
        raise ArgumentError(f"{name}: {what}; found {found}, read as {read_as}")

    of_q, of_k, of_v = sizes.values()
    if "batch" in of_q and of_q["batch"] != of_k["batch"]:
        refuse("k", f"batch is {of_k['batch']}; allowed: {of_q['batch']}, as in q")
    for axis in named["k"][:-1]:
        if of_v[axis] != of_k[axis]:
            refuse("v", f"{axis} is {of_v[axis]}; allowed: {of_k[axis]}, as in k")
    heads_q, heads_kv = of_q["heads"], of_k["heads"]
    if heads_q != heads_kv and (heads_kv == 0 or heads_q % heads_kv):
        refuse("k", f"heads is {heads_kv}; allowed: a divisor of q's {heads_q} heads")


def _shape(x: Tensor) -> str:
    return f"({', '.join(map(str, x.shape))})"
