"""The backward pass of one spec: checks, workspaces, and the launches of its kernels one after the other."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from fagen.errors import ArgumentError, PlanError
from fagen.ops import checks
from fagen.ops.checks import Device
from fagen.ops.kernels import Kernels, Launches
from fagen.ops.layout import Packing, contiguous, result_sizes, shape_of, strides_of
from fagen.ops.packing import check_values
from fagen.ops.remembered import Remembered
from fagen.ops.workspaces import DTYPES, allocate
from fagen.plan import params
from fagen.plan.arguments import arguments
from fagen.plan.backward_launch import backward_launches
from fagen.plan.maps import Strides
from fagen.spec.model import Spec

Gradients = tuple[Tensor, Tensor, Tensor]  # dq, dk, dv


class Inputs(NamedTuple):
    """What gradients are computed from; all but `dout` and `dlse` the forward was given or gave."""

    dout: Tensor  # out's sizes and dtype, any strides
    dlse: Tensor | None  # LSE's, likewise; None: zeros
    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor
    packing: Packing | None
    seed: Tensor | None  # of the dropout mask
    row_stats: Tensor | None  # v1's m and l


class _Call(NamedTuple):
    """What a call needs besides addresses and a stream."""

    launchers: tuple[Launches, ...]  # none: the gradients are 0
    workspaces: dict[str, int]  # bytes by name
    device: int | None  # index of the GPU; None: the emulator


class Backward:
    """The backward pass of one spec, on CUDA tensors or in the emulator."""

    def __init__(self, spec: Spec, arch: str | None, device: Device):
        """Plan it. Raises PlanError."""
        self.kernels = Kernels(spec, arch, "backward")
        self._spec = spec
        self._device: Device = device
        self._calls: Remembered[_Call] = Remembered()

    def __call__(self, given: Inputs, scale: float | None = None, dropout_p: float = 0.0) -> Gradients:
        """dq, dk and dv: contiguous, in the sizes and dtype of q, k and v; on torch's current stream.

        `scale` and `dropout_p` are the forward's. Raises ArgumentError before anything runs, also where torch
        is told to be deterministic and the spec is not; torch.OutOfMemoryError, with the bytes wanted, where
        there is no room for the workspaces; PlanError, CompileError or LaunchError at the first call on a
        device, which builds the kernels.
        """
        self._check_determinism()
        self.check(given)
        given = self._readable(given)
        if given.packing is not None:
            check_values(given.packing, given.q.shape[0], given.k.shape[0])
        key = (
            *((x.shape, x.stride()) for x in (given.q, given.k, given.v, given.out, given.dout)),
            given.q.device,
            given.packing and (given.packing.cu_seqlens_q.shape, *given.packing.lengths),
            scale,
            dropout_p,
        )
        call = self._calls.get(key)
        if call is None:
            problem = self._spec.problem
            scale, dropout_p = checks.check_scale(problem, scale), checks.check_dropout(problem, dropout_p)
            call = self._new_call(given, scale, dropout_p)
            self._calls[key] = call
        dq, dk, dv = (x.new_empty(x.shape) for x in (given.q, given.k, given.v))
        if not call.launchers:
            return dq.zero_(), dk.zero_(), dv.zero_()
        made = allocate(call.workspaces, dq, f"{self._spec.name}: the backward")
        tensors = given._asdict() | {"dq": dq, "dk": dk, "dv": dv, **made}
        if given.packing is not None:
            tensors |= given.packing._asdict()
        addresses = [0 if (x := tensors.get(name)) is None else x.data_ptr() for name in params.BACKWARD]
        stream = 0 if call.device is None else torch._C._cuda_getCurrentRawStream(call.device)
        for launcher in call.launchers:
            launcher(stream, *addresses)
        return dq, dk, dv

    def check(self, given: Inputs) -> None:
        """What fake tensors have, too: types, devices, dtypes and sizes. Raises ArgumentError."""
        q = given.q
        checks.check_tensors(self._spec.problem, q, given.k, given.v, given.packing, self._device)
        out_sizes, lse_sizes = result_sizes(self._spec.problem, q)
        checks.check_tensor("dout", given.dout, out_sizes, q.dtype, q)
        checks.check_tensor("out", given.out, out_sizes, q.dtype, q)
        checks.check_tensor("lse", given.lse, lse_sizes, torch.float32, q)
        if given.dlse is not None:
            checks.check_tensor("dlse", given.dlse, lse_sizes, torch.float32, q)
        if given.seed is not None:
            checks.check_tensor("seed", given.seed, (1,), torch.int64, q)
        if given.row_stats is not None:
            checks.check_tensor("row_stats", given.row_stats, (2, *lse_sizes), torch.float32, q)

    def _check_determinism(self) -> None:
        """Honour `torch.use_deterministic_algorithms`, or refuse."""
        if self._spec.problem.deterministic or self._spec.family == "v1":
            return
        if torch.are_deterministic_algorithms_enabled():
            found = (
                f"problem.deterministic: is false, so the gradients of {self._spec.name} may differ in their "
                "last bits from run to run; allowed under torch.use_deterministic_algorithms(True): true"
            )
            if not torch.is_deterministic_algorithms_warn_only_enabled():
                raise ArgumentError(found)
            warnings.warn(found, stacklevel=2)

    def _readable(self, given: Inputs) -> Inputs:
        """The same in memory that kernels can read; copies where they could not. Raises ArgumentError."""
        problem = self._spec.problem
        checks.check_memory(problem, given.q, given.k, given.v)
        return given._replace(
            dout=checks.readable(problem, given.dout),
            dlse=None if given.dlse is None else given.dlse.contiguous(),
            out=checks.readable(problem, given.out),
            lse=given.lse.contiguous(),
            row_stats=None if given.row_stats is None else given.row_stats.contiguous(),
        )

    def _new_call(self, given: Inputs, scale: float, dropout_p: float) -> _Call:
        problem, device = self._spec.problem, given.q.device.index
        plan, kernels, sms = self.kernels.on(device)
        shape = shape_of(problem, given.q, given.k, given.packing)
        try:
            launches = backward_launches(plan, shape, scale, sms, dropout_p)
            if not all(launch.grid for launch in launches):
                return _Call((), {}, device)
            strides = self._strides(given)
            prepared = [
                (kernel, launch, arguments(kernel.plan, shape, launch, strides))
                for kernel, launch in zip(kernels, launches, strict=True)
            ]
        except PlanError as error:  # here it is the tensors that are too large
            raise ArgumentError(str(error)) from error
        launchers = tuple(kernel.launcher(launch, of_it) for kernel, launch, of_it in prepared)
        # What a kernel takes that neither the caller nor the forward gives.
        wanted = {param.name for kernel in kernels for param in kernel.plan.params}
        wanted -= {name for name, x in given._asdict().items() if x is not None}
        extents = prepared[0][-1].extents
        return _Call(launchers, {name: extents[name] for name in DTYPES if name in wanted}, device)

    def _strides(self, given: Inputs) -> dict[str, Strides]:
        own = {name: getattr(given, name).stride() for name in ("q", "k", "v", "out", "dout")}
        gradients = {f"d{name}": contiguous(getattr(given, name).shape) for name in ("q", "k", "v")}
        return {name: strides_of(self._spec.problem, each) for name, each in (own | gradients).items()}
