"""Source → Artifact: CUDA C++ to machine code, on any machine, with neither GPU nor driver."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Sequence
from typing import Any

import cuda.bindings.nvrtc as nvrtc
from cuda.pathfinder import DynamicLibNotFoundError

from fagen.compile import headers, report
from fagen.compile.artifact import Artifact, Program
from fagen.compile.cache import Cache, default_root
from fagen.compile.cubin import Cubin
from fagen.compile.options import options
from fagen.compile.program import merged
from fagen.emit.source import Source
from fagen.errors import CompileError


@functools.cache
def nvrtc_version() -> tuple[int, int]:
    """Version of the NVRTC in use, (13, 0). Raises CompileError where there is none."""
    try:
        result, major, minor = nvrtc.nvrtcVersion()
    except DynamicLibNotFoundError as error:
        raise CompileError("NVRTC (libnvrtc.so) not found: install the nvidia-cuda-nvrtc package") from error
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC does not tell its version: {result.name}")
    return major, minor


def compile_source(source: Source, cache: Cache | None = None) -> Artifact:
    """`compile_sources` of one."""
    (artifact,) = compile_sources([source], cache)
    return artifact


def compile_sources(sources: Sequence[Source], cache: Cache | None = None) -> tuple[Artifact, ...]:
    """The artifact of each of `sources` out of their `compile_program`."""
    program = compile_program(sources, cache)
    return tuple(program.artifact(source.symbol) for source in sources)


def compile_program(sources: Sequence[Source], cache: Cache | None = None) -> Program:
    """Compile `sources`, of one spec and arch, together, or take them from the cache (by default the user's).

    Raises CompileError when a header is missing, NVRTC refuses a source, or a kernel spills, uses local
    memory or draws a C75xx note that its source's `allow` does not name.
    """
    unit = prepare(*sources)
    return _checked(sources, (cache or Cache(default_root())).fetch(unit, lambda: _compile(unit)))


def find_program(sources: Sequence[Source], cache: Cache | None = None) -> Program | None:
    """What `compile_program` would take from the cache; raises what it does then."""
    program = (cache or Cache(default_root())).find(prepare(*sources))
    return _checked(sources, program) if program else None


def _checked(sources: Sequence[Source], program: Program) -> Program:
    for source in sources:
        report.check(source, program.resources[source.symbol])
    return program


def prepare(*sources: Source) -> Cubin:
    """Collect what decides the cubin. Raises CompileError for a header that is missing."""
    source, symbols = merged(sources), tuple(one.symbol for one in sources)
    closure = headers.closure(source.text)
    include = [headers.INCLUDE]
    version = None
    if closure.cuda:
        found = headers.find_cuda_headers(nvrtc_version()[0], closure.cuda)
        if found.path is None:
            raise CompileError(f"{source.symbol}: {found.problem}")
        include.append(found.path)
        version = found.version
    return Cubin(source, symbols, closure.own, version, options(source.arch, tuple(include)), nvrtc_version())


def _compile(unit: Cubin) -> Program:
    source = unit.source
    started = time.perf_counter()
    cubin, log = _run(source, unit.options)
    seconds = time.perf_counter() - started
    if not cubin.startswith(b"\x7fELF"):
        raise CompileError(f"{source.symbol} for {source.arch}: NVRTC made no machine code\n{log}")
    return Program(
        name=source.name,
        symbol=source.symbol,
        arch=source.arch,
        key=unit.key,
        nvrtc=unit.nvrtc,
        cubin=cubin,
        resources=report.parse(log, unit.symbols),
        log=log,
        seconds=seconds,
        cached=False,
        path=None,
    )


def _run(source: Source, arguments: tuple[str, ...]) -> tuple[bytes, str]:
    """One NVRTC program: its cubin and its log."""
    file = f"{source.name}/{source.file}"  # as the log and the line table name it
    program = _value(nvrtc.nvrtcCreateProgram(source.text.encode(), file.encode(), 0, [], []))
    try:
        encoded = [os.fsencode(argument) for argument in arguments]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        buffer = bytearray(_value(nvrtc.nvrtcGetProgramLogSize(program)))
        _value(nvrtc.nvrtcGetProgramLog(program, buffer))
        log = buffer.rstrip(b"\0 \n").decode(errors="replace")
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            version = ".".join(map(str, nvrtc_version()))
            raise CompileError(f"{source.symbol} for {source.arch}: NVRTC {version}: {result.name}\n{log}")
        cubin = bytearray(_value(nvrtc.nvrtcGetCUBINSize(program)))
        _value(nvrtc.nvrtcGetCUBIN(program, cubin))
        return bytes(cubin), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _value(answer: tuple) -> Any:
    """What an NVRTC call returned beside its result. Raises CompileError unless that is success."""
    result, *values = answer
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC: {result.name}")
    return values[0] if values else None
