"""HostLibrary → Library: the compiled kernel in this process, behind the C ABI of runtime/launch.hpp."""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_uint32,
    c_uint64,
    sizeof,
)
from dataclasses import dataclass

from fagen.emu.host import HostLibrary, HostUnit

_lock = threading.Lock()
_libraries: dict[str, Library] = {}  # by key


class CRange(Structure):
    """struct FagenEmuRange."""

    _fields_ = (
        ("name", c_char_p),
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("writable", c_uint32),
        ("reserved", c_uint32),
    )


class CBuffer(Structure):
    """struct FagenEmuBuffer."""

    _fields_ = (("name", c_char_p), ("offset", c_uint32), ("bytes", c_uint32))


class CLaunch(Structure):
    """struct FagenEmuLaunch."""

    _fields_ = (
        ("struct_bytes", c_uint64),
        ("grid", c_uint32 * 3),
        ("cluster", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("smem_bytes", c_uint32),
        ("params", c_char_p),
        ("params_bytes", c_uint64),
        ("ranges", POINTER(CRange)),
        ("range_count", c_uint64),
        ("buffers", POINTER(CBuffer)),
        ("buffer_count", c_uint64),
        ("seed", c_uint64),
        ("preemption", c_double),
        ("step_limit", c_uint64),
        ("os_threads", c_uint32),
        ("reserved", c_uint32),
        ("trace_path", c_char_p),
        ("cancel", POINTER(c_uint32)),
    )

    def __init__(self, **fields: object):
        super().__init__(struct_bytes=sizeof(CLaunch), **fields)


class CReport(Structure):
    """struct FagenEmuReport."""

    _fields_ = (
        ("struct_bytes", c_uint64),
        ("kind", c_int32),
        ("block", c_uint32 * 3),
        ("thread", c_uint32 * 3),
        ("has_thread", c_uint32),
        ("has_address", c_uint32),
        ("shared_address", c_uint32),
        ("backtrace_count", c_uint32),
        ("backtrace", c_uint64 * 32),
        ("steps", c_uint64),
        ("landings", c_uint64),
        ("text", c_char * 16384),
    )

    def __init__(self) -> None:
        super().__init__(struct_bytes=sizeof(CReport))


@dataclass(frozen=True)
class Library:
    """One kernel, ready to run; stays loaded for the life of the process."""

    file: str  # path of the shared object: where addr2line finds its lines
    _entry: ctypes.CDLL

    def run(self, launch: CLaunch) -> CReport:
        """Run the grid; other Python threads go on meanwhile, and an exception such as Ctrl-C's ends it."""
        report, cancel, ended = CReport(), c_uint32(), threading.Event()
        launch.cancel = ctypes.pointer(cancel)

        def work() -> None:
            self._entry.fagen_emu_run(ctypes.byref(launch), ctypes.byref(report))
            ended.set()

        # In a thread of its own: Python handles signals between bytecodes of the main thread, and while that
        # waits for an event, but not inside a C function.
        runner = threading.Thread(target=work, name="fagen.emu")
        try:
            runner.start()
            ended.wait()
        finally:
            cancel.value = 1
            if runner.is_alive():
                ended.wait()  # the caller's memory is in use until then
        return report

    def kind(self, number: int) -> str:
        """Name of a kind of error."""
        return self._entry.fagen_emu_kind(number).decode()


def load(compiled: HostLibrary) -> Library:
    """Load a library into this process, or return what an earlier call loaded."""
    with _lock:
        if compiled.key not in _libraries:
            file = str(compiled.path / HostUnit.binary) if compiled.path else _in_memory(compiled)
            entry = ctypes.CDLL(file)
            entry.fagen_emu_run.argtypes = (POINTER(CLaunch), POINTER(CReport))
            entry.fagen_emu_kind.argtypes, entry.fagen_emu_kind.restype = (c_int,), c_char_p
            _libraries[compiled.key] = Library(file, entry)
        return _libraries[compiled.key]


def _in_memory(compiled: HostLibrary) -> str:
    """Path of a file that exists for as long as this process does, where the cache keeps none."""
    descriptor = os.memfd_create(compiled.symbol)
    os.write(descriptor, compiled.library)
    return f"/proc/{os.getpid()}/fd/{descriptor}"
