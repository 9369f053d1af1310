"""What compile hands to runtime: one kernel's machine code and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from fagen.compile.report import Resources


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A compiled kernel, for whatever processor, as the cache keeps it."""

    name: str  # spec name
    symbol: str  # extern "C" name of the kernel
    key: str  # sha256 of everything that went into it, in hex
    log: str  # the compiler's
    seconds: float  # the compile took, when it was done
    cached: bool  # taken from the cache, not compiled by this call
    path: Path | None  # directory of the cache entry; None: kept in memory only


@dataclass(frozen=True, kw_only=True)
class Artifact(Compiled):
    """A kernel compiled for a GPU."""

    arch: str  # "sm_80"
    nvrtc: tuple[int, int]  # version of the compiler
    cubin: bytes  # ELF; kernels that were compiled together share it
    resources: Resources


@dataclass(frozen=True, kw_only=True)
class Program(Compiled):
    """Kernels compiled together; `symbol` is that of the first."""

    arch: str
    nvrtc: tuple[int, int]
    cubin: bytes
    resources: dict[str, Resources]  # by symbol

    def artifact(self, symbol: str) -> Artifact:
        """One of them."""
        common = {field.name: getattr(self, field.name) for field in fields(self)}
        return Artifact(**common | {"symbol": symbol, "resources": self.resources[symbol]})
