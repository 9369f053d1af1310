"""The host's compiler: found or missed clearly, and its libraries kept like cubins."""

from __future__ import annotations

import dataclasses
import tempfile
import warnings
from pathlib import Path

import pytest
from stubbed import source

from fagen.compile import cache
from fagen.compile.cache import Cache
from fagen.emu import host, library
from fagen.emu.library import CLaunch
from fagen.errors import CompileError

pytestmark = pytest.mark.usefixtures("stub")


def executable(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_no_compiler_names_what_was_searched_and_the_remedy(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompileError, match=r"no g\+\+ or clang\+\+ in PATH; install g\+\+ .* or set CXX"):
        host.compile_source(source(), Cache(tmp_path))


def test_cxx_is_the_only_one_tried(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    with pytest.raises(CompileError, match=r"CXX names .*none, which is not there; install"):
        host.find_compiler()


def test_cxx_may_have_arguments(monkeypatch):
    monkeypatch.setenv("CXX", "c++ -DANY")
    program, *arguments = host.find_compiler().command
    assert Path(program).is_absolute() and arguments == ["-DANY"]


def test_a_compiler_without_cpp20_is_refused(tmp_path, monkeypatch):
    old = executable(tmp_path / "old", "echo 'error: unrecognized option -std=c++20' >&2; exit 1")
    monkeypatch.setenv("CXX", str(old))
    with pytest.raises(CompileError, match=r"(?s)old does not take C\+\+20; install .*unrecognized"):
        host.find_compiler()


def test_what_the_compiler_objects_to_is_in_the_error(tmp_path):
    with pytest.raises(CompileError, match=r"(?s)tiny_fwd for the emulator: .*tiny/kernel.cu:3:.*nonsense"):
        host.compile_source(source("nonsense;"), Cache(tmp_path))
    assert not list(tmp_path.glob("*.partial"))


def test_a_header_that_is_missing_is_named(tmp_path):
    text = '#include "fagen/none.cuh"\n'
    with pytest.raises(CompileError, match=r'#include "fagen/none.cuh": not found'):
        host.compile_source(dataclasses.replace(source(), text=text), Cache(tmp_path))


def test_an_entry_is_kept_beside_the_cubins_and_found_again(tmp_path):
    first = host.compile_source(source(), Cache(tmp_path))
    assert first.path is not None and not first.cached
    assert first.path.parent == tmp_path and first.path.name == f"tiny-emu-{first.key[:16]}"
    assert {path.name for path in first.path.iterdir()} == {"kernel.cu", "kernel.so", "meta.json"}
    assert host.compile_source(source(), Cache(tmp_path)) == dataclasses.replace(first, cached=True)


def test_a_damaged_library_is_built_again(tmp_path):
    first = host.compile_source(source(), Cache(tmp_path))
    assert first.path is not None
    (first.path / "kernel.so").write_bytes(first.library[:100])
    assert not host.compile_source(source(), Cache(tmp_path)).cached
    assert host.compile_source(source(), Cache(tmp_path)).cached


def test_whatever_decides_the_library_is_in_the_key(stub):
    unit = host.prepare(dataclasses.replace(source(), text='#include "fagen/base/grid.cuh"\n'))
    assert {"abi.hpp", "launch.hpp", "fagen/base/grid.cuh"} <= {name for name, _ in unit.headers}
    (stub / "launch.hpp").write_text("// changed\n")
    name, contents = unit.headers[0]
    others = [
        host.prepare(unit.source),
        dataclasses.replace(unit, source=dataclasses.replace(unit.source, text="")),
        dataclasses.replace(unit, source=dataclasses.replace(unit.source, symbol="other")),
        dataclasses.replace(unit, headers=((name, contents + b" "), *unit.headers[1:])),
        dataclasses.replace(unit, compiler=host.Compiler(unit.compiler.command, "another")),
    ]
    assert len({unit.key, *(other.key for other in others)}) == 1 + len(others)


def test_the_headers_that_the_define_swaps_in_are_in_the_key():
    text = '#include "fagen/ptx/cp_async.cuh"\n'
    unit = host.prepare(dataclasses.replace(source(), text=text))
    assert "fagen/ptx/emu/cp_async.cuh" in dict(unit.headers)


def test_a_library_names_no_place_on_this_machine(tmp_path):
    compiled = host.compile_source(source(), Cache(tmp_path))
    for place in (host.RUNTIME, Path.cwd(), tempfile.gettempdir()):
        assert str(place).encode() not in compiled.library


def test_without_a_usable_cache_it_runs_from_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_in_memory", {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = host.compile_source(source("report.steps = 5;", name="in_memory"), Cache(None))
    assert compiled.path is None
    launch = CLaunch(params=bytes(16), params_bytes=16)
    assert library.load(compiled).run(launch).steps == 5
