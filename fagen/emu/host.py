"""Source → HostLibrary: the same generated CUDA C++, compiled by the host's C++ compiler for the emulator."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fagen.compile import headers
from fagen.compile.artifact import Compiled
from fagen.compile.cache import Cache, Unit, default_root
from fagen.emit.source import Source
from fagen.errors import CompileError
from fagen.hw.arch import ARCHES

RUNTIME = Path(__file__).resolve().parent / "runtime"
ENV = "CXX"
COMPILERS = ("g++", "clang++")
STANDARD = "-std=c++20"
FLAGS = (
    STANDARD,
    "-O1",
    "-g",  # reports name lines
    "-fno-omit-frame-pointer",
    "-fno-strict-aliasing",
    "-fPIC",
    "-fvisibility=hidden",  # each kernel its own runtime: see runtime/launch.hpp
    "-shared",
    "-pthread",
)
REMEDY = f"install g++ 11 or clang++ 14, or newer, or set {ENV} to a compiler that takes {STANDARD}"

_PROBE = "#include <concepts>\nstatic_assert(__cplusplus >= 202002L && std::integral<int>);\n"


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler that takes C++20."""

    command: tuple[str, ...]
    version: str  # first line of what it says of itself, and the machine it compiles for


def find_compiler() -> Compiler:
    """The compiler named by CXX, else the first of g++ and clang++ in PATH.

    Raises CompileError, with the remedy, where there is none or it does not take C++20.
    """
    return _find_compiler(os.environ.get(ENV), os.environ.get("PATH"))


@functools.cache
def _find_compiler(named: str | None, path: str | None) -> Compiler:
    candidates = [shlex.split(named)] if named else [[name] for name in COMPILERS]
    for program, *arguments in candidates:
        if found := shutil.which(program, path=path):
            return _compiler((os.path.abspath(found), *arguments))
    searched = f"{ENV} names {named}, which is not there" if named else f"no {' or '.join(COMPILERS)} in PATH"
    raise CompileError(f"the emulator needs a C++ compiler: {searched}; {REMEDY}")


def _compiler(command: tuple[str, ...]) -> Compiler:
    probe = _call((*command, STANDARD, "-fsyntax-only", "-x", "c++", "-"), _PROBE)
    if probe.returncode:
        raise CompileError(
            f"the emulator needs a C++ compiler: {' '.join(command)} does not take C++20; {REMEDY}\n"
            f"{probe.stderr}"
        )
    version, machine = (_call((*command, option)).stdout.strip() for option in ("--version", "-dumpmachine"))
    return Compiler(command, f"{version.splitlines()[0] if version else 'unnamed'} ({machine})")


def _call(
    command: tuple[str, ...], text: str = "", directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=text, cwd=directory, capture_output=True, text=True, errors="replace", check=False
    )


@dataclass(frozen=True, kw_only=True)
class HostLibrary(Compiled):
    """A kernel compiled for the emulator."""

    compiler: str  # its version
    library: bytes  # ELF shared object


@dataclass(frozen=True)
class HostUnit(Unit[HostLibrary]):
    """Everything that decides the bytes of one library of the emulator."""

    source: Source
    headers: tuple[tuple[str, bytes], ...]  # of the kernel, ptx/emu among them, and of the runtime
    compiler: Compiler

    binary = "kernel.so"

    @property
    def target(self) -> str:
        """The emulator, whatever GPU the kernel was printed for."""
        return "emu"

    @property
    def parts(self) -> tuple[Any, ...]:
        """What the key is made of."""
        return (
            self.source.text,
            self.source.file,
            [(name, hashlib.sha256(contents).hexdigest()) for name, contents in self.headers],
            self.compiler.version,
            flags(self.source),
            platform.machine(),
            self.source.symbol,
        )

    @property
    def made_with(self) -> dict[str, Any]:
        """Compiler and flags."""
        return {"compiler": self.compiler.version, "flags": flags(self.source)}

    def pack(self, compiled: HostLibrary) -> tuple[bytes, dict[str, Any]]:
        """The library."""
        return compiled.library, {}

    def unpack(self, binary: bytes, meta: Mapping[str, Any], entry: Path) -> HostLibrary:
        """The library that was packed."""
        return HostLibrary(**self.restored(meta, entry), compiler=self.compiler.version, library=binary)


def flags(source: Source) -> tuple[str, ...]:
    """What a kernel is compiled with: FAGEN_EMU is to the headers what __CUDA_ARCH__ is on the device."""
    major, minor = ARCHES[source.arch].capability
    return (*FLAGS, f"-DFAGEN_EMU={100 * major + 10 * minor}")


def compile_source(source: Source, cache: Cache | None = None) -> HostLibrary:
    """Compile `source` for the emulator, or take it from the cache (by default the user's).

    Raises CompileError when there is no C++20 compiler, a header is missing, or the compiler refuses it.
    """
    unit = prepare(source)
    return (cache or Cache(default_root())).fetch(unit, lambda: _compile(unit))


def prepare(source: Source) -> HostUnit:
    """Collect what decides the library. Raises CompileError for a missing compiler or header."""
    own = headers.closure(source.text, emulated=True).own
    runtime = tuple((path.name, path.read_bytes()) for path in sorted(RUNTIME.glob("*.h*")))
    return HostUnit(source, own + runtime, find_compiler())


def _compile(unit: HostUnit) -> HostLibrary:
    source = unit.source
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fagen-") as temporary:
        directory = Path(temporary)
        (directory / source.file).write_text(source.text)
        (directory / "library.cpp").write_text(
            f'#include "launch.hpp"\n#include "{source.file}"\nFAGEN_EMU_KERNEL({source.symbol})\n'
        )
        # Lines are recorded as of /<name>/<file> and /fagen/..., wherever this machine keeps the files.
        places = {directory: f"/{source.name}", headers.INCLUDE: "", RUNTIME: "/fagen/emu/runtime"}
        done = _call(
            (
                *unit.compiler.command,
                *flags(source),
                *(f"-ffile-prefix-map={place}={shown}" for place, shown in places.items()),
                f"-I{RUNTIME}",
                f"-I{headers.INCLUDE}",
                str(directory / "library.cpp"),
                "-o",
                str(directory / unit.binary),
            ),
            directory=directory,
        )
        log = done.stderr.replace(f"{directory}/", f"{source.name}/")
        if done.returncode:
            raise CompileError(f"{source.symbol} for the emulator: {unit.compiler.version}\n{log}")
        return HostLibrary(
            name=source.name,
            symbol=source.symbol,
            key=unit.key,
            log=log,
            seconds=time.perf_counter() - started,
            cached=False,
            path=None,
            compiler=unit.compiler.version,
            library=(directory / unit.binary).read_bytes(),
        )
