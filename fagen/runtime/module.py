"""Artifact → Kernel: machine code loaded once per device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cuda.bindings.driver as driver

from fagen.compile.artifact import Artifact
from fagen.errors import LaunchError
from fagen.hw.arch import ARCHES
from fagen.runtime import context
from fagen.runtime.context import value

_NOT_ACCEPTED = {
    "CUDA_ERROR_INVALID_IMAGE",
    "CUDA_ERROR_INVALID_PTX",
    "CUDA_ERROR_NO_BINARY_FOR_GPU",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
}
_MAX_DYNAMIC_SHARED = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

_lock = threading.Lock()
_kernels: dict[tuple[str, str, int, int, int], Kernel] = {}


@dataclass(frozen=True)
class Kernel:
    """A kernel ready to launch on one device; stays loaded for the life of the process."""

    symbol: str
    device: int
    threads: int  # per CTA
    smem_bytes: int  # dynamic shared memory per CTA
    function: Any  # CUfunction
    context: int  # handle of the device's primary context, which the function belongs to


def load(artifact: Artifact, threads: int, smem_bytes: int, device: int) -> Kernel:
    """Load an artifact on CUDA device `device`, or return the kernel that an earlier call loaded there.

    The current device stays what it was, and a stream that is being captured is not disturbed.
    Raises LaunchError when the device is of another arch, or the driver does not take the machine code.
    """
    slot = (artifact.key, artifact.symbol, threads, smem_bytes, device)
    kernel = _kernels.get(slot)
    if kernel is None:
        with _lock:
            kernel = _kernels.get(slot)
            if kernel is None:
                kernel = _kernels[slot] = _load(artifact, threads, smem_bytes, device)
    return kernel


def _load(artifact: Artifact, threads: int, smem_bytes: int, device: int) -> Kernel:
    _check_arch(artifact, device)
    doing = f"loading {artifact.symbol} on CUDA device {device}"
    with context.current_device(device), _capture_undisturbed():
        result, module = driver.cuModuleLoadData(artifact.cubin)
        if result.name in _NOT_ACCEPTED:
            driver_cuda, nvrtc = _dotted(context.driver_version()), _dotted(artifact.nvrtc)
            raise LaunchError(
                f"{doing}: {result.name}: the driver (CUDA {driver_cuda}) does not take code made by NVRTC "
                f"{nvrtc}; update the driver, or install nvidia-cuda-nvrtc=={driver_cuda}.* and build again"
            )
        value(doing, (result,))
        function = value(doing, driver.cuModuleGetFunction(module, artifact.symbol.encode()))
        value(
            f"{doing} with {smem_bytes} bytes of dynamic shared memory",
            driver.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, smem_bytes),
        )
        value(doing, driver.cuFuncLoad(function))  # now, not at the first launch
    return Kernel(
        artifact.symbol, device, threads, smem_bytes, function, int(context.primary_context(device))
    )


def _check_arch(artifact: Artifact, device: int) -> None:
    """Refuse machine code of another arch by name, rather than by the driver's "invalid image"."""
    found = context.capability(device)
    if ARCHES[artifact.arch].capability != found:
        names = {arch.capability: name for name, arch in ARCHES.items()}
        own = names.get(found, "sm_{}{}".format(*found))
        raise LaunchError(
            f"{artifact.symbol} is built for {artifact.arch}; device {device} is "
            f"{context.device_name(device)}, {own}: build it for {own}"
        )


@contextmanager
def _capture_undisturbed() -> Iterator[None]:
    """Let this thread load code while a stream is captured into a graph, which would else end the capture."""
    doing = "changing the stream capture mode"
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = value(doing, driver.cuThreadExchangeStreamCaptureMode(relaxed))
    try:
        yield
    finally:
        value(doing, driver.cuThreadExchangeStreamCaptureMode(before))


def _dotted(version: tuple[int, int]) -> str:
    return "{}.{}".format(*version)
