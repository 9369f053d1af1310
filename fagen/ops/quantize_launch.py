"""Quantises tensors on a device: allocates, launches on torch's current stream, and nothing else.

Everything that depends on shapes and strides only is kept per combination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fagen.compile.nvrtc import compile_source
from fagen.emit.quantize import render
from fagen.emu import kernel as emulated
from fagen.emu.launch import SMS
from fagen.emu.launch import Launcher as EmulatedLauncher
from fagen.errors import ArgumentError, PlanError
from fagen.hw.arch import ARCHES, arch_of_capability
from fagen.hw.dtypes import DTYPES
from fagen.ops.checks import ALIGNMENT
from fagen.ops.kernels import Launches
from fagen.ops.layout import BATCH_ROW_HEAD, contiguous
from fagen.ops.remembered import Remembered
from fagen.plan.arguments import Arguments
from fagen.plan.launch import Grid
from fagen.plan.maps import Operand, Strides
from fagen.plan.quantize import BLOCK_ROWS, QuantizeKernel, Scales, Step, arguments, kernel
from fagen.runtime import context, module
from fagen.runtime.launch import Launcher

EMULATED_ARCH = "sm_90a"
_KEY_ALIGNMENT = 16  # keys of a row of a transposed v


class Options(NamedTuple):
    """How one tensor is quantised."""

    scale: str  # "block" | "head" | "tensor"
    dtype: str  # "e4m3" | "e5m2"
    layout: str  # "bshd" | "bhsd"
    hadamard: bool = False
    transposed: bool = False
    group: int = 1  # neighbouring heads that share the scale of a head

    @property
    def torch_dtype(self) -> torch.dtype:
        """Of the result."""
        return getattr(torch, DTYPES[self.dtype].torch)


def out_sizes(x: Tensor, options: Options) -> tuple[Any, ...]:
    """The sizes of the result; of a transposed one with room for rows at multiples of 16."""
    if not options.transposed:
        return tuple(x.shape)
    batch, rows, heads = (x.shape[axis] for axis in _axes(options))
    return batch, heads, x.shape[-1], -(-rows // _KEY_ALIGNMENT) * _KEY_ALIGNMENT


def descale_sizes(x: Tensor, options: Options) -> tuple[Any, ...]:
    """The sizes of the descales."""
    batch, rows, heads = (x.shape[axis] for axis in _axes(options))
    return {
        "tensor": (1,),
        "head": (batch, heads // options.group),
        "block": (batch, heads, -(-rows // BLOCK_ROWS)),
    }[options.scale]


class _Call(NamedTuple):
    """What quantising one tensor needs besides addresses and a stream."""

    launchers: tuple[Launches, ...]  # none: the tensor is empty
    out_sizes: tuple[int, ...]
    descale_sizes: tuple[int, ...]
    dtype: torch.dtype


class Quantize:
    """Quantises several tensors at a time; calls that are alike share their preparations."""

    def __init__(self) -> None:
        self._calls: Remembered[tuple[_Call, ...]] = Remembered()

    def __call__(
        self,
        tensors: Sequence[Tensor],
        given: tuple[Any, ...],
        check: Callable[[], None],
        options: Callable[[], Sequence[Options]],
    ) -> tuple[Tensor, ...]:
        """The results, then the descales. `given` decides `options`; `check` raises for what cannot be."""
        try:
            misaligned = [x.data_ptr() % ALIGNMENT for x in tensors]
            key = (*given, *((x.shape, x.stride(), x.dtype, x.device) for x in tensors), *misaligned)
            calls = self._calls.get(key)
        except (RuntimeError, TypeError):  # no strides, no storage or no hash
            check()
            raise
        if calls is None:
            check()
            calls = tuple(_new_call(x, own) for x, own in zip(tensors, options(), strict=True))
            self._calls[key] = calls
        results, descales = zip(*(_run(x, call) for x, call in zip(tensors, calls, strict=True)), strict=True)
        return *results, *descales


def _run(x: Tensor, call: _Call) -> tuple[Tensor, Tensor]:
    out = x.new_empty(call.out_sizes, dtype=call.dtype)
    descale = x.new_empty(call.descale_sizes, dtype=torch.float32)
    if not call.launchers:
        return out, descale.fill_(1.0)
    amax_at = 0
    if len(call.launchers) > 1:
        amax = torch.zeros_like(descale)
        amax_at = amax.data_ptr()
    stream = 0 if x.device.type == "cpu" else torch._C._cuda_getCurrentRawStream(x.device.index)
    for launcher in call.launchers:
        launcher(stream, x.data_ptr(), out.data_ptr(), descale.data_ptr(), amax_at)
    return out, descale


def _new_call(x: Tensor, options: Options) -> _Call:
    sizes, descales = out_sizes(x, options), descale_sizes(x, options)
    call = _Call((), sizes, descales, options.torch_dtype)
    if not x.numel():
        return call
    batch, rows, heads = (x.shape[axis] for axis in _axes(options))
    operand = Operand(batch, rows, heads, x.shape[-1], _strides(options, x.stride()))
    steps = contiguous(sizes)
    out = Strides(steps[0], steps[2], steps[1]) if options.transposed else _strides(options, steps)
    scales = Scales(0, 0, heads, 1)
    if options.scale != "tensor":
        scales = Scales(heads // options.group, 1, options.group, batch * heads // options.group)
    dtype_in = next(name for name, row in DTYPES.items() if getattr(torch, row.torch) == x.dtype)
    launchers = []
    for step in ("block",) if options.scale == "block" else ("amax", "given"):
        transposed = options.transposed and step != "amax"
        wanted = dtype_in, options.dtype, x.shape[-1], step, options.hadamard, transposed
        try:
            planned, launcher, sms = _kernel(x.device.index, *wanted)
            grid, own = arguments(planned, operand, out, sizes[0] * steps[0], scales, sms)
        except PlanError as error:  # here it is the tensor that is too large
            raise ArgumentError(str(error)) from error
        launchers.append(launcher(grid, own))
    return call._replace(launchers=tuple(launchers))


@cache
def _kernel(
    device: int | None, dtype_in: str, dtype: str, head_dim: int, step: Step, hadamard: bool, transposed: bool
) -> tuple[QuantizeKernel, Callable[[Grid, Arguments], Launches], int]:
    """A kernel on a CUDA device, or in the emulator: what makes its launches, and the SMs there."""
    arch = ARCHES[EMULATED_ARCH] if device is None else arch_of_capability(context.capability(device))
    planned = kernel(arch, dtype_in, dtype, head_dim, step, hadamard, transposed)
    source = render(planned)
    if device is None:
        return planned, partial(EmulatedLauncher, emulated.load(source, _buffers(planned))), SMS
    loaded = module.load(compile_source(source), planned.threads, planned.smem_bytes, device)
    return planned, partial(Launcher, loaded), context.sms(device)


def _buffers(planned: QuantizeKernel) -> tuple[emulated.SharedBuffer, ...]:
    return tuple(emulated.SharedBuffer(own.name, own.offset, own.bytes) for own in planned.buffers)


def _axes(options: Options) -> tuple[int, int, int]:
    batch, row, head = BATCH_ROW_HEAD[options.layout]
    assert batch is not None
    return batch, row, head


def _strides(options: Options, steps: Sequence[int]) -> Strides:
    return Strides(*(steps[axis] for axis in _axes(options)))
