"""Kernel → running: the part of every call that Python pays for."""

from __future__ import annotations

import ctypes
import struct
import threading

import cuda.bindings.driver as driver

from fagen.errors import LaunchError
from fagen.plan import params
from fagen.plan.arguments import Arguments
from fagen.plan.launch import Grid
from fagen.plan.params import MAP_ALIGNMENT
from fagen.runtime.context import current_device
from fagen.runtime.module import Kernel
from fagen.runtime.tensormap import EncodedMap, encode

_ANYWHERE = 2**40  # where tensor maps are encoded for, until the first call moves them


class Launcher:
    """One kernel at one grid and one set of shapes and strides; a call only swaps addresses and stream.

    Prepared once: the launch configuration, and the block of memory that the driver copies the kernel's
    argument from, with its tensor maps. A call neither synchronises nor allocates device memory, so it can be
    captured into a CUDA graph. It may come from any thread, whatever device is current there; calls of one
    launcher take turns, because they share the block and the configuration.
    """

    def __init__(self, kernel: Kernel, launch: Grid, arguments: Arguments):
        """Prepare launches. Raises LaunchError where the driver does not take a tensor map."""
        self._kernel = kernel
        at = params.offsets(arguments.params)
        numbers = arguments.numbers | dict.fromkeys(arguments.addresses, 0)
        index = arguments.addresses.index
        with current_device(kernel.device):  # the driver wants one, though it touches no device
            maps = {f"{name}_map": encode(own, _ANYWHERE) for name, own in arguments.maps.items()}
        packed = params.pack(arguments.params, numbers | maps)
        self._room = ctypes.create_string_buffer(len(packed) + MAP_ALIGNMENT)
        block = ctypes.addressof(self._room)
        block += -block % MAP_ALIGNMENT
        ctypes.memmove(block, packed, len(packed))
        self._argument = (ctypes.c_void_p * 1)(block)  # the kernel takes one struct
        self._arguments = ctypes.addressof(self._argument)

        pointers = [param.name for param in arguments.params if param.is_pointer]  # neighbours in the struct
        self._pointers = [index(name) for name in pointers]
        self._pack_pointers = struct.Struct(f"@{len(pointers)}P").pack_into
        self._pointers_at = block - ctypes.addressof(self._room) + at[pointers[0]]
        self._maps = [(index(name), EncodedMap(block + at[f"{name}_map"])) for name in arguments.maps]

        config = driver.CUlaunchConfig()
        config.gridDimX = launch.grid
        config.blockDimX = kernel.threads
        config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1
        config.sharedMemBytes = kernel.smem_bytes
        if launch.cluster > 1:
            config.attrs, config.numAttrs = [_cluster(launch.cluster)], 1
        self._config = config
        self._function = kernel.function
        self._context = kernel.context
        self._turn = threading.Lock()

    def __call__(self, stream: int, *addresses: int) -> None:
        """Launch on the stream with handle `stream` (0: the device's default stream).

        `addresses` are those of Arguments.addresses, 0 for what there is not. Raises LaunchError when the
        driver refuses the launch.
        """
        if int(driver.cuCtxGetCurrent()[1]) != self._context:
            with current_device(self._kernel.device):
                return self(stream, *addresses)
        with self._turn:
            self._pack_pointers(self._room, self._pointers_at, *[addresses[i] for i in self._pointers])
            for i, tensor_map in self._maps:
                tensor_map.move(addresses[i])
            self._config.hStream = stream
            (result,) = driver.cuLaunchKernelEx(self._config, self._function, self._arguments, 0)
        if result:
            kernel = self._kernel
            raise LaunchError(
                f"launching {kernel.symbol} on CUDA device {kernel.device} with a grid of "
                f"{self._config.gridDimX}, {kernel.threads} threads and {kernel.smem_bytes} bytes of shared "
                f"memory: {result.name}"
            )


def _cluster(ctas: int) -> driver.CUlaunchAttribute:
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x = ctas
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
    return attribute
