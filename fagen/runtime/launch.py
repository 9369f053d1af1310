"""Kernel → running: the part of every call that Python pays for."""

from __future__ import annotations

import ctypes
import struct
import threading

import cuda.bindings.driver as driver

from fagen.errors import LaunchError
from fagen.plan.params import POINTERS, struct_format
from fagen.runtime.context import current_device
from fagen.runtime.module import Kernel


class Launcher:
    """One kernel at one grid and one set of shapes and strides; a call only swaps pointers and stream.

    Prepared once: the launch configuration, and the block of memory that the driver copies the kernel's
    argument from. A call neither synchronises nor allocates device memory, so it can be captured into a CUDA
    graph. It may come from any thread, whatever device is current there; calls of one launcher take turns,
    because they share the block and the configuration.
    """

    def __init__(self, kernel: Kernel, grid: int, scalars: tuple[int | float, ...]):
        """Prepare launches of `grid` CTAs; `scalars` are the fields of params.FORWARD after the pointers."""
        self._kernel = kernel
        block = ctypes.create_string_buffer(struct.pack(struct_format(), *(0,) * POINTERS, *scalars))
        self._block = block
        self._argument = (ctypes.c_void_p * 1)(ctypes.addressof(block))  # the kernel takes one struct
        self._arguments = ctypes.addressof(self._argument)
        self._pack_pointers = struct.Struct(f"@{POINTERS}P").pack_into
        config = driver.CUlaunchConfig()
        config.gridDimX = grid
        config.blockDimX = kernel.threads
        config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1
        config.sharedMemBytes = kernel.smem_bytes
        self._config = config
        self._function = kernel.function
        self._context = kernel.context
        self._turn = threading.Lock()

    def __call__(self, stream: int, q: int, k: int, v: int, out: int, lse: int) -> None:
        """Launch on the stream with handle `stream` (0: the device's default stream); pointers are addresses.

        `lse` is 0 where it is not wanted. Raises LaunchError when the driver refuses the launch.
        """
        if int(driver.cuCtxGetCurrent()[1]) != self._context:
            with current_device(self._kernel.device):
                return self(stream, q, k, v, out, lse)
        with self._turn:
            self._pack_pointers(self._block, 0, q, k, v, out, lse)
            self._config.hStream = stream
            (result,) = driver.cuLaunchKernelEx(self._config, self._function, self._arguments, 0)
        if result:
            kernel = self._kernel
            raise LaunchError(
                f"launching {kernel.symbol} on CUDA device {kernel.device} with a grid of "
                f"{self._config.gridDimX}, {kernel.threads} threads and {kernel.smem_bytes} bytes of shared "
                f"memory: {result.name}"
            )
