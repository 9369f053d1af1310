"""A kernel that the emulator can run, and the memory that it may touch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fagen.emit.source import Source
from fagen.emu import host, library
from fagen.emu.library import Library
from fagen.plan.kernels import KernelPlan


class Range(NamedTuple):
    """A piece of global memory that a kernel may touch."""

    name: str  # "q"
    address: int
    bytes: int
    writable: bool = False


class SharedBuffer(NamedTuple):
    """A named piece of a CTA's dynamic shared memory, for messages."""

    name: str  # "k[1]"
    offset: int  # bytes from the start of dynamic shared memory
    bytes: int


@dataclass(frozen=True)
class Kernel:
    """A kernel compiled for the emulator and loaded into this process."""

    source: Source
    library: Library
    buffers: tuple[SharedBuffer, ...] = ()


def load(source: Source, buffers: tuple[SharedBuffer, ...] = ()) -> Kernel:
    """Compile and load `source`. Raises CompileError."""
    return Kernel(source, library.load(host.compile_source(source)), buffers)


def shared_buffers(kernel: KernelPlan) -> tuple[SharedBuffer, ...]:
    """What a planned kernel keeps in shared memory, stage by stage."""
    tiles = [
        SharedBuffer(
            buffer.name if buffer.stages == 1 else f"{buffer.name}[{stage}]",
            buffer.offset + stage * (buffer.bytes // buffer.stages),
            buffer.bytes // buffer.stages,
        )
        for buffer in kernel.buffers
        for stage in range(buffer.stages)
    ]
    names = [f"{barrier.name}[{stage}]" for barrier in kernel.barriers for stage in range(barrier.stages)]
    return (*tiles, *(SharedBuffer(name, kernel.barriers_offset + 8 * i, 8) for i, name in enumerate(names)))
