from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tiny import source

from fagen.compile import headers
from fagen.compile.cache import Cache
from fagen.compile.nvrtc import compile_source, nvrtc_version
from fagen.errors import CompileError

MAJOR = 13
HALF = source("p[0] = __half2float(__float2half(p[1]));", head="#include <cuda_fp16.h>")


def cuda_directory(path: Path, version: int = MAJOR * 1000, without: str = "") -> Path:
    """A CUDA include directory with the real headers, that says it is of `version`."""
    real = headers.find_cuda_headers(MAJOR).path
    assert real is not None
    path.mkdir(parents=True)
    for name in headers.CUDA_HEADERS:
        shutil.copy(real / name, path)
    (path / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {version}\n")
    if without:
        (path / without).unlink()
    return path


@pytest.fixture
def tree(tmp_path):
    """Headers of our own: a.cuh includes b.cuh, both include each other's, and b.cuh a CUDA header."""
    (tmp_path / "fagen").mkdir()
    (tmp_path / "fagen/a.cuh").write_text('#pragma once\n#include "fagen/b.cuh"  // why\n')
    (tmp_path / "fagen/b.cuh").write_text(
        '#pragma once\n  #  include <cuda_fp16.h>\n#include "fagen/a.cuh"\n'
    )
    return tmp_path


def test_the_closure_follows_includes_and_keeps_bytes(tree):
    closure = headers.closure('#include "fagen/a.cuh"\nint x;', tree)
    assert [name for name, _ in closure.own] == ["fagen/a.cuh", "fagen/b.cuh"]
    assert dict(closure.own)["fagen/b.cuh"] == (tree / "fagen/b.cuh").read_bytes()
    assert closure.cuda == ("cuda_fp16.h",)


def test_the_emulators_headers_and_its_runtime_are_followed_for_the_emulator_alone(tree):
    emu = tree / "fagen/ptx/emu"
    emu.mkdir(parents=True)
    (emu / "c.cuh").write_text('#include "runtime.hpp"\n#include <thread>\n#include "fagen/a.cuh"\n')
    text = '#include "fagen/ptx/emu/c.cuh"\n'
    assert headers.closure(text, tree) == headers.Closure((), ())
    closure = headers.closure(text, tree, emulated=True)
    assert [name for name, _ in closure.own] == ["fagen/a.cuh", "fagen/b.cuh", "fagen/ptx/emu/c.cuh"]
    assert closure.cuda == ("cuda_fp16.h",)


def test_a_missing_header_is_named_with_its_includer_and_the_directory(tree):
    (tree / "fagen/b.cuh").unlink()
    with pytest.raises(CompileError, match=r'fagen/a.cuh: #include "fagen/b.cuh": not found') as error:
        headers.closure('#include "fagen/a.cuh"', tree)
    assert str(tree) in str(error.value)


@pytest.mark.parametrize("target", ['"b.cuh"', '"fagen/../../secret.h"', "NAME", "<a b>"])
def test_an_include_that_the_hash_would_miss_is_refused(tree, target):
    with pytest.raises(CompileError, match="the kernel: #include"):
        headers.closure(f"#include {target}", tree)


def test_the_directory_given_by_environment_is_the_only_one_searched(tmp_path, monkeypatch):
    directory = cuda_directory(tmp_path / "cuda", 13020)
    monkeypatch.setenv(headers.ENV, str(directory))
    found = headers.find_cuda_headers(MAJOR)
    assert (found.path, found.version, found.searched, found.problem) == (directory, (13, 2), (), None)

    monkeypatch.setenv(headers.ENV, str(tmp_path / "nowhere"))
    found = headers.find_cuda_headers(MAJOR)
    assert found.path is None
    assert found.searched == (f"{tmp_path / 'nowhere'}: no such directory",)


def test_toolkits_that_do_not_fit_are_passed_over(tmp_path, monkeypatch):
    old = cuda_directory(tmp_path / "old/include", 12090)
    part = cuda_directory(tmp_path / "part/include", without="cuda_fp16.h")
    good = cuda_directory(tmp_path / "good/include")
    monkeypatch.setattr(headers.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("CUDA_PATH", str(old.parent))
    monkeypatch.setenv("CUDA_HOME", str(part.parent))
    (good.parent / "bin").mkdir()
    monkeypatch.setattr(headers.shutil, "which", lambda name: str(good.parent / "bin/nvcc"))
    found = headers.find_cuda_headers(MAJOR)
    assert found.path == good
    assert found.searched == (f"{old}: CUDA 12.9, but NVRTC is 13.x", f"{part}: cuda_fp16.h missing")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"without": "cuda_fp16.h"}, "cuda_fp16.h missing"),
        ({"without": "cuda_runtime_api.h"}, "cuda_runtime_api.h missing"),
        ({"version": 12090}, "CUDA 12.9, but NVRTC is 13.x"),
    ],
)
def test_jit5_unusable_headers_are_one_clear_error(tmp_path, monkeypatch, fault, message):
    directory = cuda_directory(tmp_path / "cuda", **fault)
    monkeypatch.setenv(headers.ENV, str(directory))
    with pytest.raises(CompileError) as error:
        compile_source(HALF, Cache(tmp_path / "cache"))
    text = str(error.value)
    assert f"{directory}: {message}" in text
    assert "cuda_fp16.h" in text and headers.ENV in text
    assert len(text.splitlines()) <= 4
    assert not (tmp_path / "cache").exists()


def test_a_kernel_that_includes_no_cuda_header_needs_none(tmp_path, monkeypatch):
    monkeypatch.setenv(headers.ENV, str(tmp_path / "nowhere"))
    assert compile_source(source(), Cache(tmp_path)).cubin


def test_jit4_cuda_headers_under_an_awkward_path(tmp_path, monkeypatch):
    monkeypatch.setenv(headers.ENV, str(cuda_directory(tmp_path / "a b/cé d/include")))
    artifact = compile_source(HALF, Cache(tmp_path / "a b/cé d/cache"))
    assert artifact.path is not None and "cé d" in str(artifact.path)
    assert compile_source(HALF, Cache(tmp_path / "a b/cé d/cache")).cached


def test_the_headers_in_use_are_of_nvrtcs_major_version():
    found = headers.find_cuda_headers(nvrtc_version()[0])
    assert found.version is not None and found.version[0] == nvrtc_version()[0]
