"""What compile hands to runtime: one kernel's machine code and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fagen.compile.report import Resources


@dataclass(frozen=True)
class Artifact:
    """A compiled kernel."""

    name: str  # spec name
    symbol: str  # extern "C" name of the kernel
    arch: str  # "sm_80"
    key: str  # sha256 of everything that went into it, in hex
    nvrtc: tuple[int, int]  # version of the compiler
    cubin: bytes  # ELF
    resources: Resources
    log: str  # NVRTC's
    seconds: float  # the compile took, when it was done
    cached: bool  # taken from the cache, not compiled by this call
    path: Path | None  # directory of the cache entry; None: kept in memory only
