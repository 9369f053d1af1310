"""`fagen doctor`: what this machine has for fagen, what is wrong with it, and how to mend it."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import typer

from fagen import __version__
from fagen.compile import cache, headers
from fagen.compile.nvrtc import nvrtc_version
from fagen.emu import host
from fagen.errors import CompileError, LaunchError
from fagen.hw.arch import arch_of_capability
from fagen.runtime import context

GPU_DEVICE_FILE = Path("/dev/nvidiactl")  # NVIDIA's kernel module made it
NO_DEVICE = "CUDA_ERROR_NO_DEVICE"
NOT_KEPT = "every process builds its kernels again"
MEND_DRIVER = "install or update NVIDIA's driver; in a container, hand the GPU in (docker run --gpus all)"
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Finding:
    """One thing about the machine."""

    subject: str
    state: Literal["ok", "note", "warning", "trouble"]  # note: fine as it is; trouble: some command will fail
    message: str
    mend: str = ""


def doctor_command() -> None:
    """Check GPU, driver, NVRTC, headers, cache and host compiler; exit code 1 on trouble."""
    findings = examine()
    for finding in findings:
        said = f"{finding.state:<8} {finding.subject}: {finding.message}"
        typer.echo("\n         ".join(said.splitlines()))
        if finding.mend:
            typer.echo(f"         -> {finding.mend}")
    if any(finding.state == "trouble" for finding in findings):
        raise typer.Exit(1)


def examine() -> list[Finding]:
    """Everything doctor has to say about this machine."""
    return [_versions(), *_gpus(), *_nvrtc(), _cache(), _host_compiler()]


def _versions() -> Finding:
    versions = f"fagen {__version__}, Python {platform.python_version()}"
    try:
        return Finding("versions", "ok", f"{versions}, PyTorch {metadata.version('torch')}")
    except metadata.PackageNotFoundError:
        return Finding(
            "versions", "trouble", f"{versions}, no PyTorch; only plan, emit and build work", "install torch"
        )


def _gpus() -> Iterator[Finding]:
    try:
        count = context.device_count()
    except LaunchError as error:
        if not GPU_DEVICE_FILE.exists():
            yield Finding("GPU", "note", f"{error}; plan, emit, build and the emulator work without one")
        elif NO_DEVICE in str(error) and VISIBLE in os.environ:
            hidden = f"{VISIBLE}={os.environ[VISIBLE]!r} leaves none of this machine's"
            yield Finding("GPU", "note", f"{hidden}; plan, emit, build and the emulator work without one")
        else:
            yield Finding("GPU", "trouble", f"{GPU_DEVICE_FILE} is there, but {error}", MEND_DRIVER)
        return
    yield Finding("driver", "ok", f"supports CUDA {_dotted(context.driver_version())}")
    yield from map(_device, range(count))
    if find_spec("torch"):
        yield _torch()


def _device(device: int) -> Finding:
    name = f"device {device} is {context.device_name(device)}"
    try:
        return Finding("GPU", "ok", f"{name}, {arch_of_capability(context.capability(device)).name}")
    except LaunchError as error:
        return Finding(
            "GPU", "trouble", f"{name}: {error}", "use another GPU, or add its row to fagen/hw/arch.py"
        )


def _torch() -> Finding:
    import torch

    if torch.cuda.is_available():
        return Finding(
            "PyTorch", "ok", f"made for CUDA {torch.version.cuda}, GPUs: {torch.cuda.device_count()}"
        )
    if torch.version.cuda is None:
        return Finding("PyTorch", "trouble", "is a build without CUDA", "install a CUDA build of torch")
    return Finding(
        "PyTorch", "trouble", f"made for CUDA {torch.version.cuda}, sees no GPU", "update the driver"
    )


def _nvrtc() -> Iterator[Finding]:
    try:
        version = nvrtc_version()
    except CompileError as error:
        yield Finding("NVRTC", "trouble", str(error), "pip install 'nvidia-cuda-nvrtc>=13.0,<14'")
        return
    yield _nvrtc_for_driver(version)
    found = headers.find_cuda_headers(version[0])
    if found.problem:
        yield Finding("CUDA headers", "trouble", found.problem)
    else:
        yield Finding("CUDA headers", "ok", str(found.path))


def _nvrtc_for_driver(version: tuple[int, int]) -> Finding:
    try:
        context.device_count()
        driver = context.driver_version()
    except LaunchError:
        return Finding("NVRTC", "ok", _dotted(version))
    if version <= driver:
        return Finding("NVRTC", "ok", f"{_dotted(version)}, which the driver takes")
    return Finding(
        "NVRTC",
        "warning" if version[0] == driver[0] else "trouble",
        f"{_dotted(version)} is newer than the driver's CUDA {_dotted(driver)}; within one major version the "
        "driver takes its machine code, but not its PTX",
        f"update the driver, or pip install 'nvidia-cuda-nvrtc=={_dotted(driver)}.*'",
    )


def _cache() -> Finding:
    root = cache.default_root()
    mend = f"set {cache.ENV} to a directory that can be written"
    if root is None:
        return Finding("kernel cache", "warning", f"HOME is not set; {NOT_KEPT}", mend)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root) as file:
            file.write(b"\0")
    except OSError as error:
        return Finding(
            "kernel cache", "warning", f"{root} cannot be written: {error.strerror}; {NOT_KEPT}", mend
        )
    return Finding("kernel cache", "ok", str(root))


def _host_compiler() -> Finding:
    try:
        compiler = host.find_compiler()
    except CompileError as error:
        return Finding("host compiler", "warning", f"{error}\ntorch.compile needs one too")
    return Finding("host compiler", "ok", f"{' '.join(compiler.command)}, {compiler.version}")


def _dotted(version: tuple[int, int]) -> str:
    return "{}.{}".format(*version)
