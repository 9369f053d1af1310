"""CUDA driver calls, and the primary contexts that torch works in too.

Nothing here changes what the caller finds current afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import cuda.bindings.driver as driver
from cuda.pathfinder import DynamicLibNotFoundError

from fagen.errors import LaunchError


def value(doing: str, answer: tuple) -> Any:
    """What a driver call returned beside its result. Raises LaunchError, with CUDA's name, on a failure."""
    result, *values = answer
    if result != driver.CUresult.CUDA_SUCCESS:
        raise LaunchError(f"{doing}: {result.name}")
    return values[0] if values else None


@functools.cache
def primary_context(device: int) -> Any:
    """The device's primary context, kept alive from now on. Raises LaunchError with no driver or device."""
    return value(_using(device), driver.cuDevicePrimaryCtxRetain(_handle(device)))


@contextmanager
def current_device(device: int) -> Iterator[None]:
    """Make the device's primary context current on this thread for the length of a `with` block."""
    doing = f"switching to CUDA device {device}"
    value(doing, driver.cuCtxPushCurrent(primary_context(device)))
    try:
        yield
    finally:
        value(doing, driver.cuCtxPopCurrent())


def capability(device: int) -> tuple[int, int]:
    """Compute capability of the device, (9, 0)."""
    attribute = driver.CUdevice_attribute
    return (
        _attribute(device, attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        _attribute(device, attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    )


def sms(device: int) -> int:
    """SMs of the device."""
    return _attribute(device, driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)


def _attribute(device: int, which: Any) -> int:
    doing = f"asking CUDA device {device} for {which.name}"
    return value(doing, driver.cuDeviceGetAttribute(which, _handle(device)))


def device_name(device: int) -> str:
    """The device's product name."""
    name = value("asking for a device's name", driver.cuDeviceGetName(128, _handle(device)))
    return name.split(b"\0")[0].decode()  # behind which there may be anything


def device_uuid(device: int) -> str:
    """What nvidia-smi calls the device, "GPU-" and 36 characters."""
    uuid = value("asking for a device's UUID", driver.cuDeviceGetUuid(_handle(device)))
    return f"GPU-{UUID(bytes=uuid.bytes)}"


def driver_version() -> tuple[int, int]:
    """Newest CUDA version that the driver supports, (13, 0)."""
    number = value("asking for the driver's version", driver.cuDriverGetVersion())
    return number // 1000, number % 1000 // 10


def device_count() -> int:
    """CUDA devices on this machine. Raises LaunchError with no driver or device."""
    primary_context(0)
    return value("counting CUDA devices", driver.cuDeviceGetCount())


def visible_devices() -> int:
    """CUDA devices on this machine, maybe none; makes no context. Raises LaunchError where CUDA fails."""
    doing = "counting CUDA devices"
    try:
        answer = driver.cuInit(0)
    except DynamicLibNotFoundError:
        return 0
    if answer[0] == driver.CUresult.CUDA_ERROR_NO_DEVICE:
        return 0
    value(doing, answer)
    return value(doing, driver.cuDeviceGetCount())


def _using(device: int) -> str:
    return f"using CUDA device {device}"


def _handle(device: int) -> Any:
    """What the driver calls the device. Raises LaunchError with no driver or device."""
    try:
        value(_using(device), driver.cuInit(0))
    except DynamicLibNotFoundError as error:
        raise LaunchError(f"{_using(device)}: no CUDA driver (libcuda.so.1) on this machine") from error
    return value(_using(device), driver.cuDeviceGet(device))
