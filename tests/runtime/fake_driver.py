"""A CUDA driver for machines without one: records what it is asked, and answers as told."""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any, NamedTuple

import cuda.bindings.driver as real

OK = real.CUresult.CUDA_SUCCESS
SMS = 132  # of every device
Handle = int


class Launch(NamedTuple):
    """One call of cuLaunchKernelEx, as the driver sees it."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    stream: int
    function: Handle
    argument: bytes
    context: Handle
    cluster: tuple[int, int, int] | None


class FakeDriver:
    """The functions that fagen.runtime calls, over devices given as (name, capability)."""

    CUresult = real.CUresult
    CUfunction_attribute = real.CUfunction_attribute
    CUdevice_attribute = real.CUdevice_attribute
    CUstreamCaptureMode = real.CUstreamCaptureMode
    CUlaunchConfig = real.CUlaunchConfig
    CUlaunchAttribute = real.CUlaunchAttribute
    CUlaunchAttributeID = real.CUlaunchAttributeID
    CUtensorMap = real.CUtensorMap
    CUtensorMapInterleave = real.CUtensorMapInterleave
    CUtensorMapL2promotion = real.CUtensorMapL2promotion
    CUtensorMapFloatOOBfill = real.CUtensorMapFloatOOBfill
    cuuint32_t = real.cuuint32_t
    cuuint64_t = real.cuuint64_t

    def __init__(self, *devices: tuple[str, tuple[int, int]]):
        self.devices = devices
        self.thread = threading.local()
        self.fail: dict[str, str] = {}  # function: name of the error it answers with
        self.calls: Counter[str] = Counter()
        self.smem: dict[Handle, int] = {}
        self.launches: list[Launch] = []
        self.capture_mode = real.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        self.capture_mode_at_load = None
        self.argument_bytes = 0  # of the kernels that are launched

    @property
    def stack(self) -> list[Handle]:
        """The calling thread's context stack; 0 is no context."""
        return self.thread.__dict__.setdefault("stack", [0])

    def _answer(self, function: str, *values: Any) -> tuple:
        self.calls[function] += 1
        if function in self.fail:
            return (getattr(real.CUresult, self.fail[function]), *(None for _ in values))
        return (OK, *values)

    def cuInit(self, flags):
        return self._answer("cuInit")

    def cuDeviceGetCount(self):
        return self._answer("cuDeviceGetCount", len(self.devices))

    def cuDeviceGetUuid(self, device):
        return self._answer("cuDeviceGetUuid", SimpleNamespace(bytes=bytes([device] * 16)))

    def cuDriverGetVersion(self):
        return self._answer("cuDriverGetVersion", 13000)

    def cuDeviceGet(self, ordinal):
        if ordinal >= len(self.devices):
            return real.CUresult.CUDA_ERROR_INVALID_DEVICE, None
        return self._answer("cuDeviceGet", ordinal)

    def cuDeviceGetName(self, length, device):
        name = self.devices[device][0].encode() + b"\0"
        return self._answer("cuDeviceGetName", name.ljust(length // 2, b"\0").ljust(length))  # as seen

    def cuDeviceGetAttribute(self, attribute, device):
        known = real.CUdevice_attribute
        major, minor = self.devices[device][1]
        values = {
            known.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: major,
            known.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: minor,
            known.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: SMS,
        }
        return self._answer("cuDeviceGetAttribute", values[attribute])

    def cuDevicePrimaryCtxRetain(self, device):
        return self._answer("cuDevicePrimaryCtxRetain", 100 + device)

    def cuCtxGetCurrent(self):
        return self._answer("cuCtxGetCurrent", self.stack[-1])

    def cuCtxPushCurrent(self, context):
        self.stack.append(context)
        return self._answer("cuCtxPushCurrent")

    def cuCtxPopCurrent(self):
        return self._answer("cuCtxPopCurrent", self.stack.pop())

    def cuThreadExchangeStreamCaptureMode(self, mode):
        before, self.capture_mode = self.capture_mode, mode
        return self._answer("cuThreadExchangeStreamCaptureMode", before)

    def cuModuleLoadData(self, image):
        self.capture_mode_at_load = self.capture_mode
        return self._answer("cuModuleLoadData", 1000 + self.stack[-1])

    def cuModuleGetFunction(self, module, name):
        return self._answer("cuModuleGetFunction", module + 1000)

    def cuFuncSetAttribute(self, function, attribute, value):
        assert attribute == real.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.smem[function] = value
        return self._answer("cuFuncSetAttribute")

    def cuFuncLoad(self, function):
        return self._answer("cuFuncLoad")

    def cuTensorMapEncodeTiled(self, dtype, rank, address, dims, *rest):
        """An encoded map: the address, the rank, the dimensions, and zeros."""
        words = [address, rank, *map(int, dims)]
        opaque = [real.cuuint64_t(n) for n in words + [0] * (16 - len(words))]
        return self._answer("cuTensorMapEncodeTiled", SimpleNamespace(opaque=opaque))

    def cuTensorMapReplaceAddress(self, tensor_map, address):
        assert tensor_map.getPtr() % 64 == 0
        ctypes.c_uint64.from_address(tensor_map.getPtr()).value = address
        return self._answer("cuTensorMapReplaceAddress")

    def cuLaunchKernelEx(self, config, function, arguments, extra):
        (block,) = ctypes.cast(arguments, ctypes.POINTER(ctypes.c_void_p * 1)).contents
        # Wait where the real driver lets other threads run, before the block is read.
        threading.Event().wait(0.0005)
        self.launches.append(
            Launch(
                (config.gridDimX, config.gridDimY, config.gridDimZ),
                (config.blockDimX, config.blockDimY, config.blockDimZ),
                config.sharedMemBytes,
                int(config.hStream),
                function,
                ctypes.string_at(block, self.argument_bytes),
                self.stack[-1],
                _cluster(config),
            )
        )
        return self._answer("cuLaunchKernelEx")


def _cluster(config: real.CUlaunchConfig) -> tuple[int, int, int] | None:
    """CTAs of a cluster along each axis, as the only attribute says; None: there is no attribute."""
    if config.numAttrs == 0:
        return None
    (attribute,) = config.attrs
    assert attribute.id == real.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    size = attribute.value.clusterDim
    return size.x, size.y, size.z
