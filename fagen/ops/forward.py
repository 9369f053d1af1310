"""The forward pass of one spec: checks, allocates, launches on torch's current stream, and nothing else.

A warm call costs a few microseconds on the host: everything that depends on shapes, strides and numbers only
is kept per combination.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fagen.errors import ArgumentError, PlanError
from fagen.ops.checks import (
    ALIGNMENT,
    Device,
    check_dropout,
    check_memory,
    check_scale,
    check_tensors,
    out_dtype,
)
from fagen.ops.counters import counters_of
from fagen.ops.descales import Descales, check_descale_values, step_of
from fagen.ops.kernels import Kernels, Launches
from fagen.ops.layout import Packing, contiguous, result_sizes, shape_of, strides_of
from fagen.ops.packing import check_values
from fagen.ops.remembered import Remembered
from fagen.ops.schema import Schema
from fagen.ops.workspaces import allocate
from fagen.plan.arguments import arguments
from fagen.plan.launch import launch
from fagen.plan.workspaces import workspaces
from fagen.spec.model import Spec


class _Call(NamedTuple):
    """What a call needs besides addresses and a stream."""

    launcher: Launches | None  # None: out is 0 and LSE -inf
    out_sizes: tuple[int, ...]
    lse_sizes: tuple[int, ...]
    device: int | None  # index of the GPU; None: the emulator
    has_counters: bool  # whether the kernel takes counters
    workspaces: dict[str, int]  # bytes by name: v1's o_sum


class Forward:
    """The forward pass of one spec, on CUDA tensors or in the emulator."""

    def __init__(self, spec: Spec, arch: str | None, device: Device):
        """Plan it. Raises PlanError."""
        self.kernels = Kernels(spec, arch, "forward")
        self._name, self._problem = spec.name, spec.problem
        self._has_row_stats = Schema(spec).has_row_stats
        self._out_dtype = out_dtype(spec.problem)
        self._device: Device = device
        self._calls: Remembered[_Call] = Remembered()

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        packing: Packing | None,
        descales: Descales | None,
        seed: Tensor | None,
        scale: float | None = None,
        dropout_p: float = 0.0,
        want_lse: bool = True,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """out, LSE if wanted, and v1's m and l, fp32 [2, batch, heads_q, seqlen_q]; None: not there.

        `descales` are those of 8-bit q, k and v; `seed`, int64 [1], is that of the dropout mask. The rest is
        as in `AttentionOp.__call__`.
        """
        try:
            q_at, k_at, v_at = q.data_ptr(), k.data_ptr(), v.data_ptr()
            # fmt: off
            key = (
                q.shape, q.stride(), q.dtype, q.device,
                k.shape, k.stride(), k.dtype, k.device,
                v.shape, v.stride(), v.dtype, v.device,
                (q_at | k_at | v_at) % ALIGNMENT, scale, dropout_p,
            )
            offsets_at, descales_at = (0, 0), (0, 0, 0)
            if packing is not None:
                cu_q, cu_k, max_q, max_k = packing
                key += (
                    cu_q.shape, cu_q.stride(), cu_q.dtype, cu_q.device, max_q,
                    cu_k.shape, cu_k.stride(), cu_k.dtype, cu_k.device, max_k,
                )
                offsets_at = cu_q.data_ptr(), cu_k.data_ptr()
            if descales is not None:
                of_q, of_k, of_v = descales
                key += (
                    of_q.shape, of_q.stride(), of_q.dtype, of_q.device,
                    of_k.shape, of_k.stride(), of_k.dtype, of_k.device,
                    of_v.shape, of_v.stride(), of_v.dtype, of_v.device,
                )
                descales_at = of_q.data_ptr(), of_k.data_ptr(), of_v.data_ptr()
            # fmt: on
            call = self._calls.get(key)
        except (RuntimeError, TypeError):  # no strides, no storage or no hash
            self._check(q, k, v, packing, descales, scale, dropout_p)
            raise
        if call is None:
            numbers = self._check(q, k, v, packing, descales, scale, dropout_p)
            call = self._new_call(q, k, v, packing, descales, *numbers)
            self._calls[key] = call
        if packing is not None:
            check_values(packing, q.shape[0], k.shape[0])
        if descales is not None:
            check_descale_values(descales)

        out = q.new_empty(call.out_sizes, dtype=self._out_dtype)
        lse = q.new_empty(call.lse_sizes, dtype=torch.float32) if want_lse else None
        row_stats = q.new_empty((2, *call.lse_sizes), dtype=torch.float32) if self._has_row_stats else None
        if call.launcher is None:
            out.zero_()
            if lse is not None:
                lse.fill_(-math.inf)
        else:
            stream = 0 if call.device is None else torch._C._cuda_getCurrentRawStream(call.device)
            counters = counters_of(q, stream) if call.has_counters else None
            o_sum = None
            if call.workspaces:
                o_sum = allocate(call.workspaces, q, f"{self._name}: the forward")["o_sum"]
            call.launcher(  # addresses in the order of plan.params.FORWARD
                stream,
                q_at,
                k_at,
                v_at,
                out.data_ptr(),
                0 if lse is None else lse.data_ptr(),
                0 if o_sum is None else o_sum.data_ptr(),
                0 if row_stats is None else row_stats.data_ptr(),
                0 if counters is None else counters.data_ptr(),
                0 if seed is None else seed.data_ptr(),
                *offsets_at,
                *descales_at,
            )
        return out, lse, row_stats

    def _check(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        packing: Packing | None,
        descales: Descales | None,
        scale: float | None,
        dropout_p: float,
    ) -> tuple[float, float]:
        """The numbers to compute with."""
        check_tensors(self._problem, q, k, v, packing, self._device, descales)
        check_memory(self._problem, q, k, v)
        return check_scale(self._problem, scale), check_dropout(self._problem, dropout_p)

    def _new_call(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        packing: Packing | None,
        descales: Descales | None,
        scale: float,
        dropout_p: float,
    ) -> _Call:
        problem, device = self._problem, q.device.index
        plan, (kernel,), sms = self.kernels.on(device)
        out_sizes, lse_sizes = result_sizes(problem, q)
        strides = {"q": q.stride(), "k": k.stride(), "v": v.stride(), "out": contiguous(out_sizes)}
        by_axis = {name: strides_of(problem, own, name) for name, own in strides.items()}
        steps = {} if descales is None else {name: step_of(x) for name, x in descales._asdict().items()}
        shape = shape_of(problem, q, k, packing)
        try:
            to_launch = launch(plan, shape, scale, sms, dropout_p)
            launcher = None
            if to_launch.grid:
                launcher = kernel.launcher(
                    to_launch, arguments(kernel.plan, shape, to_launch, by_axis, steps)
                )
        except PlanError as error:  # here it is the tensors that are too large
            raise ArgumentError(str(error)) from error
        sizes = workspaces(plan, shape)
        return _Call(launcher, out_sizes, lse_sizes, device, plan.tiling.has_counters, sizes)
