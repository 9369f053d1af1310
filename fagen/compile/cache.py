"""Compiled kernels on disk, addressed by everything that decides their bytes.

One directory per entry, `<name>-<target>-<hash>/{kernel.cu, kernel.cubin, meta.json}`, or `kernel.so` for a
kernel of the emulator. It is written aside, in `<entry>.partial/`, and renamed as a whole, so an entry is
whole or absent. `<entry>.partial/lock` is held with flock while the entry is built: processes and threads
that want the same kernel wait for the first one, and a process that dies lets go. What it leaves behind is
removed by the next build, of any entry.

A cache that cannot be written costs one warning per process; kernels are then kept in memory.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

from fagen.compile.artifact import Compiled
from fagen.emit.source import Source

ENV = "FAGEN_CACHE_DIR"
KEY_FORMAT = 2  # raise it when the meaning of the key or of an entry's files changes

_PARTIAL = ".partial"
_LOCK = "lock"

C = TypeVar("C", bound=Compiled)

_log = logging.getLogger("fagen")
_building: dict[tuple[Path | None, str], threading.Lock] = {}
_in_memory: dict[tuple[Path | None, str], Compiled] = {}
_warn_once = threading.Lock()  # taken by the first warning and never released


class Unit(ABC, Generic[C]):
    """Everything that decides the bytes of one compiled kernel, and how that is kept."""

    source: Source
    binary: ClassVar[str]  # name of its file

    @property
    @abstractmethod
    def parts(self) -> tuple[Any, ...]:
        """All that decides the bytes, as JSON takes it."""

    @property
    @abstractmethod
    def target(self) -> str:
        """What it is compiled for, as the entry's name shows it."""

    @property
    @abstractmethod
    def made_with(self) -> dict[str, Any]:
        """Those of `parts` that the entry records for its reader; an entry that records others is damaged."""

    @abstractmethod
    def pack(self, compiled: C) -> tuple[bytes, dict[str, Any]]:
        """The binary, and what else must be recorded of it."""

    @abstractmethod
    def unpack(self, binary: bytes, meta: Mapping[str, Any], entry: Path) -> C:
        """What was packed, from the binary and everything recorded."""

    @cached_property
    def key(self) -> str:
        """sha256 of all of it, in hex."""
        return hashlib.sha256(json.dumps((KEY_FORMAT, *self.parts)).encode()).hexdigest()

    @property
    def entry(self) -> str:
        """Name of its directory in the cache."""
        return f"{self.source.name}-{self.target}-{self.key[:16]}"

    def restored(self, meta: Mapping[str, Any], entry: Path) -> dict[str, Any]:
        """The fields of `Compiled`, as an entry has them."""
        return {
            "name": self.source.name,
            "symbol": self.source.symbol,
            "key": self.key,
            "log": meta["log"],
            "seconds": meta["seconds"],
            "cached": True,
            "path": entry,
        }


def default_root() -> Path | None:
    """FAGEN_CACHE_DIR, else XDG_CACHE_HOME/fagen, else ~/.cache/fagen; None where HOME is not set either."""
    if own := os.environ.get(ENV):
        return Path(own).absolute()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).absolute() / "fagen"
    if home := os.environ.get("HOME"):
        return Path(home).absolute() / ".cache" / "fagen"
    return None


@dataclass(frozen=True)
class Cache:
    """The cache under `root`; with None, kernels are kept in memory."""

    root: Path | None

    def fetch(self, unit: Unit[C], build: Callable[[], C]) -> C:
        """Return the stored kernel of `unit`, or build and store it; once, however many ask at a time."""
        slot = (self.root, unit.entry)
        with _building.setdefault(slot, threading.Lock()):
            if slot in _in_memory:
                return cast(C, replace(_in_memory[slot], cached=True))
            built = None
            try:
                if self.root is None:
                    raise OSError("HOME is not set")
                entry = self.root / unit.entry
                found, _ = _read(entry, unit)
                if found:
                    return found
                with _Staging(entry) as staging:
                    found, fault = _read(entry, unit)  # another process may have built it meanwhile
                    if found:
                        return found
                    if fault:
                        _log.warning("kernel cache: %s: %s; building it again", entry, fault)
                    built = build()
                    staging.publish(_files(unit, built))
                _sweep(self.root)
                return replace(built, path=entry)
            except OSError as error:
                self._warn(error)
            built = built or build()
            _in_memory[slot] = built
            return built

    def find(self, unit: Unit[C]) -> C | None:
        """The stored kernel of `unit`, if one is on disk that is whole."""
        with suppress(OSError):
            return _read(self.root / unit.entry, unit)[0] if self.root else None

    def _warn(self, error: OSError) -> None:
        if _warn_once.acquire(blocking=False):
            warnings.warn(
                f"the kernel cache {self.root or '~/.cache/fagen'} cannot be used ({error}): every process "
                f"builds its kernels again; set {ENV} to a directory that can be written",
                RuntimeWarning,
                stacklevel=4,
            )


def _files(unit: Unit[C], compiled: C) -> dict[str, bytes]:
    """The files of an entry."""
    binary, more = unit.pack(compiled)
    meta = {
        "key": unit.key,
        "symbol": compiled.symbol,
        **unit.made_with,
        "sha256": hashlib.sha256(binary).hexdigest(),
        "seconds": compiled.seconds,
        **more,
        "log": compiled.log,
    }
    return {
        "kernel.cu": unit.source.text.encode(),
        unit.binary: binary,
        "meta.json": json.dumps(meta, indent=1).encode(),
    }


def _read(entry: Path, unit: Unit[C]) -> tuple[C | None, str | None]:
    """The kernel stored in `entry`, or what is wrong with it; neither when there is no entry."""
    if not entry.exists():
        return None, None
    try:
        meta = json.loads((entry / "meta.json").read_bytes())
        binary = (entry / unit.binary).read_bytes()
        if meta["key"] != unit.key:
            return None, "recorded for another source"
        for name, value in json.loads(json.dumps(unit.made_with)).items():  # tuples as JSON has them
            if meta[name] != value:
                return None, f"recorded for another {name}, {meta[name]}"
        if meta["sha256"] != hashlib.sha256(binary).hexdigest():
            return None, f"{unit.binary} is damaged"
        return unit.unpack(binary, meta, entry), None
    except (FileNotFoundError, NotADirectoryError) as error:
        return None, f"{Path(error.filename).name} is missing"
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, "meta.json is damaged"


class _Staging:
    """An entry being written, in a directory beside it that is locked for as long as this is open.

    The lock file moves with the directory when it is published, and is removed last when it is not: whoever
    waited for it then finds another file, or none, under its name, and starts over.
    """

    def __init__(self, entry: Path, wait: bool = True):
        """Wait for the lock, or with `wait=False` raise BlockingIOError where it is held."""
        self._entry = entry
        self._directory = entry.with_name(entry.name + _PARTIAL)
        self._published = False
        while True:
            entry.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                self._directory.mkdir()
            try:
                self._fd = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            except FileNotFoundError:  # published or removed since
                continue
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(self._fd), os.stat(self._directory / _LOCK)):
                        return
            except BaseException:
                os.close(self._fd)
                raise
            os.close(self._fd)

    def __enter__(self) -> _Staging:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if not self._published:
                with suppress(OSError):
                    self._clear()
                    (self._directory / _LOCK).unlink()
                    self._directory.rmdir()
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # a child forked meanwhile holds the same open file
            os.close(self._fd)

    def _clear(self) -> None:
        for path in self._directory.iterdir():
            if path.name != _LOCK:
                _remove(path)

    def publish(self, files: dict[str, bytes]) -> None:
        """Write the files and put them in the entry's place, over a damaged entry if there is one."""
        self._clear()  # a killed build may have left some
        for name, contents in files.items():
            with open(self._directory / name, "wb") as file:
                file.write(contents)
                file.flush()
                os.fsync(file.fileno())
        _fsync(self._directory)
        damaged = "damaged"
        with suppress(FileNotFoundError):
            self._entry.rename(self._directory / damaged)
        self._directory.rename(self._entry)
        self._published = True
        (self._entry / _LOCK).unlink()
        _remove(self._entry / damaged)
        _fsync(self._entry.parent)


def _sweep(root: Path) -> None:
    """Remove what killed processes left of their builds."""
    for directory in root.glob(f"*{_PARTIAL}"):
        with suppress(OSError), _Staging(directory.with_suffix(""), wait=False):
            pass  # closing an unpublished staging directory removes it


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _fsync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
