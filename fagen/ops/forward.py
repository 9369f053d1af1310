"""The callable op of one spec: checks, allocates, launches on torch's current stream, and nothing else.

A warm eager call without gradients costs a few microseconds on the host: everything that depends on shapes,
strides and scale only is kept per combination, and torch's dispatcher is passed by. Traced, differentiated
and wrapped tensors go through `torch.ops.fagen.<name>`, the same kernel behind torch's dispatcher. CPU
tensors take the same ways to the same kernel in the emulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from fagen.compile.nvrtc import compile_source
from fagen.emit.render import render
from fagen.emu.launch import SMS, Emulated
from fagen.errors import ArgumentError, LaunchError, PlanError
from fagen.hw.arch import arch_of_capability
from fagen.ops.checks import ALIGNMENT, Device, check_memory, check_scale, check_tensors
from fagen.ops.counters import counters_of
from fagen.ops.layout import Packing, contiguous, result_sizes, shape_of, strides_of
from fagen.ops.packing import check_packing, check_values, refuse_packing
from fagen.ops.register import register
from fagen.plan.arguments import Arguments, arguments
from fagen.plan.ir import Plan
from fagen.plan.launch import Launch, launch
from fagen.plan.planner import plan
from fagen.runtime import context, module
from fagen.runtime.launch import Launcher
from fagen.spec.model import Spec

# Remembered per op. A decode loop has a new one at every step: start over when full.
_MAX_CALLS = 4096

_NOTHING = (None,) * len(Packing._fields)


# (stream, *addresses): of plan.params.ADDRESSES, that of `lse` 0 where it is not wanted.
Launches = Callable[..., None]


class _Loaded(NamedTuple):
    """A kernel on one device, and the plan it was made from."""

    plan: Plan
    launcher: Callable[[Launch, Arguments], Launches]
    sms: int


class _Call(NamedTuple):
    """What a call needs besides addresses and a stream."""

    launcher: Launches | None  # None: out is 0 and LSE -inf
    out_sizes: tuple[int, ...]
    lse_sizes: tuple[int, ...]
    device: int | None  # index of the GPU; None: the emulator
    has_counters: bool  # whether the kernel takes counters


class AttentionOp:
    """Attention as one spec says: `op(q, k, v)` on CUDA tensors, also as `torch.ops.fagen.<name>`.

    With device "emu", and on a machine without a GPU, on CPU tensors, in the emulator.
    Made by `fagen.load`, which keeps one per spec.
    """

    def __init__(self, spec: Spec, arch: str | None = None, device: Device = None):
        """Plan `spec` and register it with torch; `arch` pins the op to GPUs of one arch.

        Raises PlanError, and ArgumentError if the name already stands for another spec.
        """
        self.spec = spec
        self.arch = arch  # pinned by the user; None: that of the tensors' device
        self.device: Device = device
        self.name = "__".join(filter(None, (spec.name, arch, device)))
        self._plan = plan(spec, arch)
        self._is_packed = spec.problem.layout == "thd"
        self._kernels: dict[int | None, _Loaded] = {}  # by device index; None: the emulator
        self._calls: dict[tuple, _Call] = {}
        self._lock = Lock()
        self._torch_op = register(self.name, spec, self._run_for_torch, device)

    @overload
    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float | None = None,
        return_lse: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float | None = None,
        return_lse: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        *,
        scale: float | None = None,
        return_lse: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        *,
        scale: float | None = None,
        return_lse: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor | None = None,
        cu_seqlens_k: Tensor | None = None,
        max_seqlen_q: int | None = None,
        max_seqlen_k: int | None = None,
        *,
        scale: float | None = None,
        return_lse: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """out, or (out, LSE) with `return_lse`, on the current stream of the tensors' device; never waits.

        q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_k, heads_kv, head_dim] and
        v [batch, seqlen_k, heads_kv, head_dim_v] in the spec's layout and dtype, rows 16-byte aligned and
        contiguous, heads_q a multiple of heads_kv. `scale` is 1/sqrt(head_dim) if left out. out is
        contiguous, [batch, seqlen_q, heads_q, head_dim_v] in the same layout; LSE is fp32
        [batch, heads_q, seqlen_q], natural log. A query that sees no key has out 0 and LSE -inf.

        Layout thd, which alone takes cu_seqlens and max_seqlen: the sequences lie one behind the other in
        q [tokens_q, heads_q, head_dim] and k, v [tokens_k, heads_kv, ...]; sequence b has rows
        cu_seqlens[b] to cu_seqlens[b + 1], exclusive. cu_seqlens are int32 [sequences + 1], rise from 0 to at
        most the number of tokens and stay on the tensors' device; max_seqlen are ints, at least the longest
        sequences' lengths. Values against this give undefined results; with FAGEN_CHECK_METADATA=1 in the
        environment they are copied to the host and checked, which waits for the GPU. out is
        [tokens_q, heads_q, head_dim_v], LSE [heads_q, tokens_q]; rows after the last sequence are 0 and -inf.

        Raises ArgumentError before anything runs; PlanError, CompileError or LaunchError at the first call
        on a device, which builds the kernel (see `prepare`). The emulator returns when out is there, and
        raises EmulatorError for whatever is wrong with the kernel.
        """
        given: tuple[Any, ...] = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
        packing = None
        if self._is_packed:
            packing = Packing(*given)
        elif given != _NOTHING:
            refuse_packing(self.spec.problem, given)
        if _is_plain(q, k, v, packing):
            out, lse = self._run(q, k, v, packing, scale, return_lse)
        else:
            if not torch.compiler.is_compiling():  # the dispatcher's own complaint would name no key
                self._check_tensors(q, k, v, packing)
                scale = check_scale(self.spec.problem, scale)
            out, lse = self._torch_op(q, k, v, *(packing or ()), scale)
        return (out, lse) if return_lse else out

    def __repr__(self) -> str:
        return f"<fagen op {self.name}>"

    def prepare(self, device: int | None = None) -> None:
        """Build and load the kernel before any call, for a CUDA device, the current one if left out.

        An op that runs in the emulator is built for that. Raises PlanError, CompileError, LaunchError.
        """
        if device is None and self.device is None and torch.cuda.is_available():
            device = torch.cuda.current_device()
        self._load(device)

    def _run(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        packing: Packing | None,
        scale: float | None,
        want_lse: bool,
    ) -> tuple[Tensor, Any]:
        """out and, if wanted, LSE, else None."""
        try:
            q_at, k_at, v_at = q.data_ptr(), k.data_ptr(), v.data_ptr()
            # fmt: off
            key = (
                q.shape, q.stride(), q.dtype, q.device,
                k.shape, k.stride(), k.dtype, k.device,
                v.shape, v.stride(), v.dtype, v.device,
                (q_at | k_at | v_at) % ALIGNMENT, scale,
            )
            offsets_at = ()
            if packing is not None:
                cu_q, cu_k, max_q, max_k = packing
                key += (
                    cu_q.shape, cu_q.stride(), cu_q.dtype, cu_q.device, max_q,
                    cu_k.shape, cu_k.stride(), cu_k.dtype, cu_k.device, max_k,
                )
                offsets_at = cu_q.data_ptr(), cu_k.data_ptr()
            # fmt: on
            call = self._calls.get(key)
        except (RuntimeError, TypeError):  # no strides, no storage or no hash
            self._check(q, k, v, packing, scale)
            raise
        if call is None:
            call = self._new_call(q, k, v, packing, self._check(q, k, v, packing, scale))
            if len(self._calls) >= _MAX_CALLS:
                self._calls.clear()
            self._calls[key] = call
        if packing is not None:
            check_values(packing, q.shape[0], k.shape[0])
        out = q.new_empty(call.out_sizes)
        lse = q.new_empty(call.lse_sizes, dtype=torch.float32) if want_lse else None
        if call.launcher is None:
            out.zero_()
            if lse is not None:
                lse.fill_(-math.inf)
        else:
            stream = 0 if call.device is None else torch._C._cuda_getCurrentRawStream(call.device)
            lse_at = 0 if lse is None else lse.data_ptr()
            counters = counters_of(q, stream) if call.has_counters else None
            counters_at = 0 if counters is None else counters.data_ptr()
            call.launcher(stream, q_at, k_at, v_at, out.data_ptr(), lse_at, counters_at, *offsets_at)
        return out, lse

    def _run_for_torch(
        self, q: Tensor, k: Tensor, v: Tensor, packing: Packing | None, scale: float | None
    ) -> tuple[Tensor, Tensor]:
        return self._run(q, k, v, packing, scale, want_lse=True)

    def _check(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing | None, scale: float | None) -> float:
        self._check_tensors(q, k, v, packing)
        check_memory(self.spec.problem, q, k, v)
        return check_scale(self.spec.problem, scale)

    def _check_tensors(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing | None) -> None:
        check_tensors(self.spec.problem, q, k, v, self.device)
        if packing is not None:
            check_packing(packing, q)

    def _new_call(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing | None, scale: float) -> _Call:
        problem, device = self.spec.problem, q.device.index
        loaded = self._load(device)
        out_sizes, lse_sizes = result_sizes(problem, q)
        strides = {"q": q.stride(), "k": k.stride(), "v": v.stride(), "out": contiguous(out_sizes)}
        shape = shape_of(problem, q, k, packing)
        try:
            to_launch = launch(loaded.plan, shape, scale, loaded.sms)
            launcher = None
            if to_launch.grid:
                by_axis = {name: strides_of(problem, own) for name, own in strides.items()}
                launcher = loaded.launcher(to_launch, arguments(loaded.plan, shape, to_launch, by_axis))
        except PlanError as error:  # here it is the tensors that are too large
            raise ArgumentError(str(error)) from error
        has_counters = loaded.plan.tiling.has_counters
        return _Call(launcher, out_sizes, lse_sizes, device, has_counters)

    def _load(self, device: int | None) -> _Loaded:
        with self._lock:
            if device not in self._kernels:
                self._kernels[device] = self._for_emulator() if device is None else self._for_gpu(device)
            return self._kernels[device]

    def _for_emulator(self) -> _Loaded:
        return _Loaded(self._plan, Emulated(self._plan).launcher, SMS)

    def _for_gpu(self, device: int) -> _Loaded:
        arch = arch_of_capability(context.capability(device)).name
        if self.arch not in (None, arch):
            raise LaunchError(
                f"{self.name}: arch is pinned to {self.arch}; cuda:{device} is "
                f"{context.device_name(device)}, {arch}: load it with arch={arch!r} or none"
            )
        made = self._plan if self._plan.arch.name == arch else plan(self.spec, arch)
        source = render(made)
        kernel = module.load(compile_source(source), source.threads, source.smem_bytes, device)
        return _Loaded(made, partial(Launcher, kernel), context.sms(device))


def _is_plain(q: Tensor, k: Tensor, v: Tensor, packing: Packing | None) -> bool:
    """Whether nothing but the kernel needs to see this call: no tracing, no gradients, no wrapped tensors."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or peek_interpreter_stack() is not None
        or q.__class__ is not Tensor
        or k.__class__ is not Tensor
        or v.__class__ is not Tensor
        or (packing is not None and any(x.__class__ is not Tensor for x in packing.offsets))
        or ((q.requires_grad or k.requires_grad or v.requires_grad) and torch.is_grad_enabled())
        or torch._C._len_torch_dispatch_stack()
        or forward_ad._current_level >= 0
    )
