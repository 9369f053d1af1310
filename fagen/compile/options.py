"""NVRTC's command line."""

from __future__ import annotations

from pathlib import Path


def options(arch: str, include: tuple[Path, ...]) -> tuple[str, ...]:
    """Options that compile one kernel to machine code of `arch`.

    -v puts registers and spills into the log; -lineinfo lets profilers show the source, at no cost.
    No fast math: a kernel asks for ex2.approx where it wants it. NVRTC's own cache is off: a hit in it would
    come without the log.
    """
    return (
        f"--gpu-architecture={arch}",
        "-std=c++20",
        "--device-as-default-execution-space",  # NVRTC 13.0 takes generic lambdas for host code without it
        "-lineinfo",
        "--no-cache",
        "--ptxas-options=-v",
        "--ptxas-options=--warn-on-spills",
        *(f"--include-path={directory}" for directory in include),
    )
