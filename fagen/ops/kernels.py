"""The kernels of one pass of an op, built and loaded once for each device that it runs on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import NamedTuple

from fagen.compile.nvrtc import compile_sources
from fagen.emit.render import render
from fagen.emu.launch import SMS, Emulated
from fagen.errors import LaunchError
from fagen.hw.arch import arch_of_capability
from fagen.plan.arguments import Arguments
from fagen.plan.ir import Plan
from fagen.plan.kernels import KernelPlan, kernels
from fagen.plan.launch import Launch
from fagen.plan.planner import plan
from fagen.runtime import context, module
from fagen.runtime.launch import Launcher
from fagen.spec.model import Spec

# (stream, *addresses): those that Arguments.addresses names, 0 for a tensor that is not there.
Launches = Callable[..., None]


class Built(NamedTuple):
    """A kernel on one device."""

    plan: KernelPlan
    launcher: Callable[[Launch, Arguments], Launches]


class Loaded(NamedTuple):
    """The kernels of a pass on one device, in the order of their launches, and the plan they are from."""

    plan: Plan
    kernels: tuple[Built, ...]
    sms: int


class Kernels:
    """One pass of one spec, on any device."""

    def __init__(self, spec: Spec, arch: str | None, direction: str):
        """Plan the pass; `arch` pins it to GPUs of one arch. Raises PlanError."""
        self._spec = spec
        self._arch = arch
        self._direction: str = direction
        self._plan = plan(spec, arch, direction)
        self._loaded: dict[int | None, Loaded] = {}  # by device index; None: the emulator
        self._lock = Lock()

    def on(self, device: int | None) -> Loaded:
        """The kernels on CUDA device `device`, or in the emulator; built and loaded by the first call.

        Raises PlanError, CompileError, LaunchError.
        """
        with self._lock:
            if device not in self._loaded:
                self._loaded[device] = self._emulated() if device is None else self._on_gpu(device)
            return self._loaded[device]

    def _emulated(self) -> Loaded:
        built = tuple(Built(kernel, Emulated(kernel).launcher) for kernel in kernels(self._plan))
        return Loaded(self._plan, built, SMS)

    def _on_gpu(self, device: int) -> Loaded:
        arch = arch_of_capability(context.capability(device)).name
        if self._arch not in (None, arch):
            raise LaunchError(
                f"{self._spec.name}: arch is pinned to {self._arch}; cuda:{device} is "
                f"{context.device_name(device)}, {arch}: load it with arch={arch!r} or none"
            )
        made = self._plan if self._plan.arch.name == arch else plan(self._spec, arch, self._direction)
        return Loaded(made, _build(kernels(made), device), context.sms(device))


def _build(planned: tuple[KernelPlan, ...], device: int) -> tuple[Built, ...]:
    artifacts = compile_sources([render(kernel) for kernel in planned])
    loaded = (
        module.load(artifact, kernel.threads, kernel.smem_bytes, device)
        for kernel, artifact in zip(planned, artifacts, strict=True)
    )
    return tuple(Built(kernel, partial(Launcher, own)) for kernel, own in zip(planned, loaded, strict=True))
