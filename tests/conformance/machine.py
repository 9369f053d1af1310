"""Where a conformance kernel runs: a GPU, or the emulator. Both take the same source and arguments."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fagen.emit.source import Source
from fagen.plan.tensor_map import BYTES, TensorMap

ARCH = "sm_90a"


@dataclass(frozen=True)
class Map:
    """A tensor map of an array in global memory."""

    array: np.ndarray
    tensor_map: TensorMap


Field = np.ndarray | int | Map | list[Map]

_NO_DEFINES: Mapping[str, object] = {}


def source(name: str, threads: int, smem_bytes: int, defines: Mapping[str, object]) -> Source:
    """<name>.cu after one #define per name; its kernel has the same name."""
    lines = [f"#define {macro} {value}\n" for macro, value in defines.items()]
    text = "".join(lines) + (Path(__file__).parent / f"{name}.cu").read_text()
    return Source(f"conformance_{name}", name, ARCH, text, threads, smem_bytes)


class Machine(ABC):
    """Runs kernels whose one argument is a struct of tensor maps, pointers and int32."""

    compiles_slowly: bool  # so that large sources are worth cutting, and compiling side by side

    def run(
        self,
        name: str,
        fields: Sequence[Field],
        *,
        grid: int,
        threads: int = 128,
        smem_bytes: int = 0,
        cluster: int = 1,
        defines: Mapping[str, object] = _NO_DEFINES,
    ) -> None:
        """Run <name>.cu; arrays, contiguous ones, are changed in place."""
        named = [x for field in fields for x in (field if isinstance(field, list) else [field])]
        arrays = [x.array if isinstance(x, Map) else x for x in named if not isinstance(x, int)]
        unique = [*{id(array): array for array in arrays}.values()]
        self._run(source(name, threads, smem_bytes, defines), fields, unique, grid, cluster)

    @abstractmethod
    def compile(self, source: Source) -> None:
        """Compile the source into the cache."""

    @abstractmethod
    def _run(
        self, source: Source, fields: Sequence[Field], arrays: list[np.ndarray], grid: int, cluster: int
    ) -> None: ...


def pack(fields: Sequence[Field], addresses: Mapping[int, int], encode) -> bytes:
    """The struct as C lays it out; addresses are by the id of the array."""
    packed = b""
    for field in fields:
        if isinstance(field, int):
            part, align = struct.pack("i", field), 4
        elif isinstance(field, np.ndarray):
            part, align = struct.pack("P", addresses[id(field)]), 8
        else:
            maps = [field] if isinstance(field, Map) else field
            part, align = b"".join(encode(m.tensor_map, addresses[id(m.array)]) for m in maps), 64
            assert len(part) == BYTES * len(maps)
        packed += b"\0" * (-len(packed) % align) + part
    has_maps = any(not isinstance(field, int | np.ndarray) for field in fields)
    return packed + b"\0" * (-len(packed) % (64 if has_maps else 8))


class Emulator(Machine):
    """The kernel on this machine's CPU."""

    compiles_slowly = False

    def compile(self, source: Source) -> None:
        """Compile for the host."""
        from fagen.emu.host import compile_source

        compile_source(source)

    def _run(self, source, fields, arrays, grid, cluster):
        from fagen.emu import kernel, tensormap
        from fagen.emu.run import run

        # TMA wants 16-byte alignment, which numpy does not promise.
        copies = [_aligned_copy(array) for array in arrays]
        addresses = {id(a): copy.ctypes.data for a, copy in zip(arrays, copies, strict=True)}
        ranges = [
            kernel.Range(f"array {i}", copy.ctypes.data, copy.nbytes, writable=True)
            for i, copy in enumerate(copies)
        ]
        params = pack(fields, addresses, tensormap.encode)
        run(kernel.load(source), (grid, 1, 1), params, ranges, (cluster, 1, 1))
        for array, copy in zip(arrays, copies, strict=True):
            array[...] = copy


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    room = np.empty(array.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 128
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Gpu(Machine):
    """The kernel on CUDA device 0."""

    compiles_slowly = True

    def compile(self, source: Source) -> None:
        """Compile with NVRTC."""
        from fagen.compile.nvrtc import compile_source

        compile_source(source)

    def _run(self, source, fields, arrays, grid, cluster):
        import cuda.bindings.driver as driver
        import torch

        from fagen.compile.nvrtc import compile_source
        from fagen.runtime.context import current_device, value
        from fagen.runtime.module import load
        from fagen.runtime.tensormap import encode

        kernel = load(compile_source(source), source.threads, source.smem_bytes, 0)
        copies = [torch.from_numpy(array.reshape(-1).view(np.uint8)).cuda() for array in arrays]
        addresses = {id(a): copy.data_ptr() for a, copy in zip(arrays, copies, strict=True)}
        params = np.frombuffer(pack(fields, addresses, encode), np.uint8).copy()
        argument = np.array([params.ctypes.data], np.uint64)
        config = driver.CUlaunchConfig()
        config.gridDimX, config.blockDimX = grid, source.threads
        config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1
        config.sharedMemBytes = source.smem_bytes
        if cluster > 1:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value.clusterDim.x = cluster
            attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
            config.attrs, config.numAttrs = [attribute], 1
        with current_device(0):
            torch.cuda.synchronize()
            value(
                f"launching {source.symbol}",
                driver.cuLaunchKernelEx(config, kernel.function, argument.ctypes.data, 0),
            )
            torch.cuda.synchronize()
        for array, copy in zip(arrays, copies, strict=True):
            array.reshape(-1).view(np.uint8)[...] = copy.cpu().numpy()
