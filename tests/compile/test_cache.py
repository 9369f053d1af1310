from __future__ import annotations

import dataclasses
import errno
import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tiny import build_all, source

from fagen.compile import cache, nvrtc
from fagen.compile.cache import Cache, default_root
from fagen.compile.nvrtc import compile_source, prepare

FILES = {"kernel.cu", "kernel.cubin", "meta.json"}


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


@pytest.fixture
def compiles(monkeypatch):
    """Names of the kernels that NVRTC compiles, one for each compile."""
    names: list[str] = []
    run = nvrtc._run

    def counted(source, arguments):
        names.append(source.name)
        return run(source, arguments)

    monkeypatch.setattr(nvrtc, "_run", counted)
    return names


def test_an_entry_is_a_directory_with_what_was_compiled(tmp_path):
    artifact = compile_source(source(), Cache(tmp_path))
    assert artifact.path is not None and not artifact.cached
    assert artifact.path.name == f"tiny0-sm_80-{artifact.key[:16]}"
    assert {path.name for path in artifact.path.iterdir()} == FILES
    assert (artifact.path / "kernel.cubin").read_bytes() == artifact.cubin
    assert (artifact.path / "kernel.cu").read_text() == source().text


def test_a_stored_artifact_comes_back_equal_and_is_not_compiled(tmp_path, compiles):
    first = compile_source(source(), Cache(tmp_path))
    second = compile_source(source(), Cache(tmp_path))
    assert second == dataclasses.replace(first, cached=True)
    assert compiles == ["tiny0"]


def test_whatever_decides_the_cubin_is_in_the_key():
    unit = prepare(source(head='#include "fagen/base/types.cuh"'))
    name, contents = unit.headers[0]
    others = [
        dataclasses.replace(unit, source=dataclasses.replace(unit.source, text=unit.source.text + " ")),
        dataclasses.replace(unit, source=dataclasses.replace(unit.source, arch="sm_86")),
        dataclasses.replace(unit, symbols=("other",)),
        dataclasses.replace(unit, headers=((name, contents + b" "), *unit.headers[1:])),
        dataclasses.replace(unit, headers=((name + "x", contents), *unit.headers[1:])),
        dataclasses.replace(unit, cuda=(12, 9)),
        dataclasses.replace(unit, options=(*unit.options, "-G")),
        dataclasses.replace(unit, nvrtc=(12, 9)),
    ]
    assert len({unit.key, *(other.key for other in others)}) == 1 + len(others)
    # What may be allowed decides no byte.
    allowing = dataclasses.replace(unit, source=dataclasses.replace(unit.source, allow=("spills",)))
    assert allowing.key == unit.key


def test_jit2a_other_text_is_rebuilt_whatever_the_files_ages(tmp_path, compiles):
    first = compile_source(source(), Cache(tmp_path))
    assert first.path is not None
    future = time.time() + 3600
    for path in first.path.iterdir():
        os.utime(path, (future, future))
    second = compile_source(source("p[threadIdx.x] = 2;"), Cache(tmp_path))
    assert not second.cached and second.cubin != first.cubin
    assert len(compiles) == 2


def halve(entry: Path) -> None:
    cubin = (entry / "kernel.cubin").read_bytes()
    (entry / "kernel.cubin").write_bytes(cubin[: len(cubin) // 2])


def zero(entry: Path) -> None:
    (entry / "kernel.cubin").write_bytes(bytes((entry / "kernel.cubin").stat().st_size))


def other_nvrtc(entry: Path) -> None:
    meta = json.loads((entry / "meta.json").read_text())
    (entry / "meta.json").write_text(json.dumps({**meta, "nvrtc": [12, 0]}))


def other_source(entry: Path) -> None:
    meta = json.loads((entry / "meta.json").read_text())
    (entry / "meta.json").write_text(json.dumps({**meta, "key": meta["key"][:16] + "0" * 48}))


def cut_meta(entry: Path) -> None:
    (entry / "meta.json").write_text((entry / "meta.json").read_text()[:100])


def empty_meta(entry: Path) -> None:
    (entry / "meta.json").write_text("[]")


def deep_meta(entry: Path) -> None:
    (entry / "meta.json").write_text("[" * 100_000)


def no_cubin(entry: Path) -> None:
    (entry / "kernel.cubin").unlink()


def a_file(entry: Path) -> None:
    for path in entry.iterdir():
        path.unlink()
    entry.rmdir()
    entry.write_text("not a directory")


@pytest.mark.parametrize(
    "damage", [halve, zero, other_nvrtc, other_source, cut_meta, empty_meta, deep_meta, no_cubin, a_file]
)
def test_jit2_a_damaged_entry_is_noticed_once_and_replaced(tmp_path, caplog, compiles, damage):
    good = compile_source(source(), Cache(tmp_path))
    assert good.path is not None
    damage(good.path)
    with caplog.at_level(logging.WARNING, "fagen"):
        rebuilt = compile_source(source(), Cache(tmp_path))
    assert not rebuilt.cached and rebuilt.cubin == good.cubin
    assert len(caplog.records) == 1 and str(good.path) in caplog.text
    assert compile_source(source(), Cache(tmp_path)).cached
    assert len(caplog.records) == 1
    assert len(compiles) == 2
    assert tree(tmp_path) == {good.path.name, *(f"{good.path.name}/{name}" for name in FILES)}


def test_jit1_many_processes_on_an_empty_cache_compile_each_kernel_once(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    start, results = spawn.Barrier(8), spawn.Queue()
    processes = [
        spawn.Process(target=build_all, args=(start, str(tmp_path), range(3), results)) for _ in range(8)
    ]
    for process in processes:
        process.start()
    answers = [answer for _ in processes for answer in results.get(timeout=120)]
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    for number in range(3):
        own = [(cached, cubin) for name, cached, cubin in answers if name == f"tiny{number}"]
        assert len(own) == 8 and len({cubin for _, cubin in own}) == 1
        assert [cached for cached, _ in own].count(False) == 1
    assert len(tree(tmp_path)) == 3 * (1 + len(FILES))


def test_many_threads_compile_each_kernel_once(tmp_path, compiles):
    start = threading.Barrier(16)

    def work(number: int) -> list[bytes]:
        start.wait()
        return [compile_source(source(number=n), Cache(tmp_path)).cubin for n in (0, number)]

    with ThreadPoolExecutor(16) as pool:
        cubins = list(pool.map(work, range(1, 17)))
    assert sorted(compiles) == sorted(f"tiny{number}" for number in range(17))
    assert len({shared for shared, _ in cubins}) == 1
    assert len({own for _, own in cubins}) == 16
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".partial")]


HANG = """
import sys, time
from pathlib import Path
from tiny import build_all, source
from fagen.compile import nvrtc
from fagen.compile.cache import Cache, _Staging
publish = _Staging.publish
def hang(staging, files):
    (staging._directory / "kernel.cu").write_text("half")
    print("building", flush=True)
    time.sleep(600)
_Staging.publish = hang
nvrtc.compile_source(source(), Cache(Path(sys.argv[1])))
"""


def test_a_killed_build_blocks_nobody_and_leaves_nothing(tmp_path):
    builder = subprocess.Popen(
        [sys.executable, "-c", HANG, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    assert builder.stdout is not None and builder.stdout.readline() == b"building\n"
    # Another kernel's build leaves the living one alone ...
    compile_source(source(number=1), Cache(tmp_path))
    assert len(list(tmp_path.glob("tiny0*.partial/kernel.cu"))) == 1
    # ... and removes it once it is dead.
    builder.send_signal(signal.SIGKILL)
    builder.wait(timeout=60)
    builder.stdout.close()
    compile_source(source(number=2), Cache(tmp_path))
    assert not list(tmp_path.glob("*.partial"))
    assert not compile_source(source(), Cache(tmp_path)).cached


def test_the_builder_of_a_killed_build_starts_clean(tmp_path):
    unit = prepare(source())
    left = tmp_path / f"{unit.entry}.partial"
    left.mkdir()
    (left / "lock").touch()
    (left / "kernel.cu").write_text("half")
    (left / "damaged").mkdir()
    artifact = compile_source(source(), Cache(tmp_path))
    assert artifact.path is not None and {path.name for path in artifact.path.iterdir()} == FILES
    assert compile_source(source(), Cache(tmp_path)).cached


def test_where_the_cache_is(monkeypatch):
    for name in (cache.ENV, "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert default_root() is None
    monkeypatch.setenv("HOME", "/h")
    assert default_root() == Path("/h/.cache/fagen")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert default_root() == Path("/x/fagen")
    monkeypatch.setenv(cache.ENV, "/own")
    assert default_root() == Path("/own")


def in_memory(root: Path | None, compiles: list[str], place: str) -> None:
    """With an unusable cache: two kernels, each compiled once, and exactly one warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        artifacts = [compile_source(source(number=number), Cache(root)) for number in (0, 1, 0)]
    assert compiles == ["tiny0", "tiny1"]
    assert [artifact.cached for artifact in artifacts] == [False, False, True]
    assert all(artifact.path is None and artifact.cubin for artifact in artifacts)
    (warning,) = caught
    assert place in str(warning.message) and cache.ENV in str(warning.message)


@pytest.fixture
def empty_memory(monkeypatch):
    monkeypatch.setattr(cache, "_in_memory", {})


@pytest.mark.usefixtures("empty_memory")
class TestJit3:
    def test_no_home(self, monkeypatch, compiles):
        for name in (cache.ENV, "XDG_CACHE_HOME", "HOME"):
            monkeypatch.delenv(name, raising=False)
        in_memory(default_root(), compiles, "~/.cache/fagen")

    def test_a_file_in_the_directorys_place(self, tmp_path, compiles):
        (tmp_path / "cache").touch()
        in_memory(tmp_path / "cache", compiles, str(tmp_path / "cache"))

    def test_a_directory_that_cannot_be_made(self, compiles):
        in_memory(Path("/proc/fagen"), compiles, "/proc/fagen")

    def test_a_full_disk(self, tmp_path, monkeypatch, compiles):
        def full(fd):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(cache.os, "fsync", full)
        in_memory(tmp_path, compiles, str(tmp_path))
        assert list(tmp_path.iterdir()) == []

    def test_a_file_system_without_locks(self, tmp_path, monkeypatch, compiles):
        flock = cache.fcntl.flock

        def no_locks(fd, operation):
            if operation & cache.fcntl.LOCK_EX:
                raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
            flock(fd, operation)

        monkeypatch.setattr(cache.fcntl, "flock", no_locks)
        in_memory(tmp_path, compiles, str(tmp_path))
