"""The headers a kernel includes: fagen's own, which are hashed, and CUDA's, which are found and checked.

A kernel includes `"fagen/..."` from the templates and `<cuda_fp16.h>`-like headers from one CUDA include
directory. Any other spelling is refused: it would slip past the hash that the cache key rests on.
Headers under `fagen/ptx/emu/` are the emulator's: NVRTC skips them, and so does the closure made for it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fagen.errors import CompileError
from fagen.paths import TEMPLATES

INCLUDE = TEMPLATES / "include"
ENV = "FAGEN_CUDA_INCLUDE"
EMULATED = "fagen/ptx/emu/"
CUDA_HEADERS = ("cuda_bf16.h", "cuda_fp16.h")

_VERSION_HEADER = "cuda_runtime_api.h"
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*include\b[ \t]*(.*?)[ \t]*(?://.*)?$", re.MULTILINE)
_OWN = re.compile(r'"(fagen/[\w./-]+)"')
_CUDA = re.compile(r"<([\w./-]+)>")
_VERSION = re.compile(r"^#define\s+CUDART_VERSION\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Closure:
    """Everything a source includes, directly or not."""

    own: tuple[tuple[str, bytes], ...]  # ("fagen/base/types.cuh", its bytes), sorted by name
    cuda: tuple[str, ...]  # "cuda_fp16.h", sorted


def closure(text: str, root: Path = INCLUDE, emulated: bool = False) -> Closure:
    """Follow the includes of `text` through the headers under `root`, with those of the emulator or without.

    The emulator's may include its runtime as they like. Raises CompileError for a header that is not there
    and for an include spelled any other way.
    """
    own: dict[str, bytes] = {}
    cuda: set[str] = set()
    waiting = [("the kernel", text)]
    while waiting:
        includer, code = waiting.pop()
        for target in _DIRECTIVE.findall(code):
            if (match := _OWN.fullmatch(target)) and ".." not in match[1].split("/"):
                name = match[1]
                if name not in own and (emulated or not name.startswith(EMULATED)):
                    own[name] = _read(root, name, includer)
                    waiting.append((name, own[name].decode()))
            elif includer.startswith(EMULATED):
                continue
            elif match := _CUDA.fullmatch(target):
                cuda.add(match[1])
            else:
                raise CompileError(
                    f'{includer}: #include {target}: allowed are "fagen/..." (under {root}) and <CUDA header>'
                )
    return Closure(tuple(sorted(own.items())), tuple(sorted(cuda)))


def _read(root: Path, name: str, includer: str) -> bytes:
    try:
        return (root / name).read_bytes()
    except OSError as error:
        raise CompileError(f'{includer}: #include "{name}": not found; searched {root}') from error


@dataclass(frozen=True)
class CudaHeaders:
    """The CUDA include directory in use, or what is wrong."""

    path: Path | None
    version: tuple[int, int] | None  # (13, 0)
    searched: tuple[str, ...]  # every directory looked at before `path`, and why it was not taken
    problem: str | None  # what to tell the user when there is no usable directory


def find_cuda_headers(nvrtc_major: int, headers: tuple[str, ...] = CUDA_HEADERS) -> CudaHeaders:
    """Find the first directory that holds `headers` of NVRTC's major version.

    Searched: FAGEN_CUDA_INCLUDE alone if it is set; else the nvidia-cuda-runtime wheel, CUDA_PATH, CUDA_HOME,
    the toolkit that nvcc belongs to, /usr/local/cuda.
    """
    searched: list[str] = []
    for directory in _candidates(nvrtc_major):
        version, fault = _inspect(directory, headers, nvrtc_major)
        if fault is None:
            return CudaHeaders(directory, version, tuple(searched), None)
        searched.append(f"{directory}: {fault}")
    problem = "\n  ".join(
        (
            f"no CUDA headers ({', '.join(headers)}) of version {nvrtc_major}.x; searched:",
            *(searched or ["(nothing: no wheel, no CUDA_PATH or CUDA_HOME, no nvcc)"]),
            f"install nvidia-cuda-runtime=={nvrtc_major}.*, or set {ENV} to a CUDA include directory",
        )
    )
    return CudaHeaders(None, None, tuple(searched), problem)


def _candidates(nvrtc_major: int) -> Iterator[Path]:
    """Include directories worth looking at, each once, in order of preference."""
    if override := os.environ.get(ENV):
        yield Path(override)
        return
    seen: set[Path] = set()
    for directory in _installed(nvrtc_major):
        resolved = directory.resolve()
        if resolved not in seen:
            seen.add(resolved)
            yield directory


def _installed(nvrtc_major: int) -> Iterator[Path]:
    wheel = importlib.util.find_spec("nvidia")
    for site in wheel.submodule_search_locations or () if wheel else ():
        yield Path(site) / f"cu{nvrtc_major}" / "include"
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if toolkit := os.environ.get(variable):
            yield Path(toolkit) / "include"
    if nvcc := shutil.which("nvcc"):
        yield Path(nvcc).resolve().parent.parent / "include"
    yield Path("/usr/local/cuda/include")


def _inspect(
    directory: Path, headers: tuple[str, ...], nvrtc_major: int
) -> tuple[tuple[int, int] | None, str | None]:
    """Version of the headers in `directory`, and what rules them out, if anything."""
    if not directory.is_dir():
        return None, "no such directory"
    missing = [name for name in (*headers, _VERSION_HEADER) if not (directory / name).is_file()]
    if missing:
        return None, f"{', '.join(missing)} missing"
    match = _VERSION.search((directory / _VERSION_HEADER).read_text(errors="replace"))
    if match is None:
        return None, f"{_VERSION_HEADER} does not define CUDART_VERSION"
    number = int(match[1])  # 13050 is 13.5
    version = (number // 1000, number % 1000 // 10)
    if version[0] != nvrtc_major:
        return version, f"CUDA {version[0]}.{version[1]}, but NVRTC is {nvrtc_major}.x"
    return version, None
