"""What emit hands to compile: one kernel's CUDA C++ and how it must be launched."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """Rendered CUDA C++ of one kernel."""

    name: str  # spec name
    symbol: str  # extern "C" name of the kernel
    arch: str  # "sm_80"
    text: str
    threads: int  # per CTA
    smem_bytes: int  # dynamic shared memory per CTA
    file: str = "kernel.cu"  # its name in generated/<name>/, in logs and in reports
    allow: tuple[str, ...] = ()  # resource findings that do not fail the build: "spills", "stack"
