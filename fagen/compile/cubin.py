"""What decides the bytes of a cubin, and how the cache keeps one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fagen.compile.artifact import Program
from fagen.compile.cache import Unit
from fagen.compile.report import Resources
from fagen.emit.source import Source


@dataclass(frozen=True)
class Cubin(Unit[Program]):
    """Everything that decides the bytes of one cubin."""

    source: Source  # of all its kernels
    symbols: tuple[str, ...]  # theirs
    headers: tuple[tuple[str, bytes], ...]  # fagen's, as included: name and contents
    cuda: tuple[int, int] | None  # version of the CUDA headers; None: none are included
    options: tuple[str, ...]
    nvrtc: tuple[int, int]

    binary = "kernel.cubin"

    @property
    def parts(self) -> tuple[Any, ...]:
        """What the key is made of."""
        return (
            self.source.text,
            self.source.file,
            [(name, hashlib.sha256(contents).hexdigest()) for name, contents in self.headers],
            self.cuda,
            self.options,
            self.nvrtc,
            self.source.arch,
            self.symbols,
        )

    @property
    def target(self) -> str:
        """The arch."""
        return self.source.arch

    @property
    def made_with(self) -> dict[str, Any]:
        """Compiler, headers and options."""
        return {"nvrtc": self.nvrtc, "cuda_headers": self.cuda, "options": self.options}

    def pack(self, compiled: Program) -> tuple[bytes, dict[str, Any]]:
        """The cubin, and its kernels' resources."""
        return compiled.cubin, {"resources": {name: asdict(one) for name, one in compiled.resources.items()}}

    def unpack(self, binary: bytes, meta: Mapping[str, Any], entry: Path) -> Program:
        """The program that was packed."""
        resources = {
            name: Resources(**{**one, "warnings": tuple(one["warnings"])})
            for name, one in meta["resources"].items()
        }
        return Program(
            **self.restored(meta, entry),
            arch=self.source.arch,
            nvrtc=self.nvrtc,
            cubin=binary,
            resources=resources,
        )
