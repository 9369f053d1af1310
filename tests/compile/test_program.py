"""Several kernels compiled as one program."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tiny import source

from fagen.compile import nvrtc
from fagen.compile.cache import Cache
from fagen.compile.nvrtc import compile_sources
from fagen.compile.program import merged
from fagen.emit.render import render
from fagen.errors import CompileError
from fagen.paths import SPECS
from fagen.plan.kernels import kernels
from fagen.plan.planner import plan
from fagen.spec.load import load_spec


def two(first="p[0] = n;", second="p[1] = n;"):
    """Kernels whose own types have the same names."""
    head = "#include <cuda_fp16.h>\nstruct Params {{ {} field; }};"
    one, other = (
        replace(source(body, head=head.format(field)), symbol=f"{name}_fwd", file=f"{name}.cu")
        for name, body, field in (("one", first, "int"), ("other", second, "float"))
    )
    return [replace(each, text=each.text.replace(source().symbol, each.symbol)) for each in (one, other)]


def test_one_source_is_left_as_it_is():
    assert merged([source()]) is not None and merged([source()]) == source()


def test_they_are_compiled_once_and_share_a_cubin(tmp_path, monkeypatch):
    runs = []
    run = nvrtc._run
    monkeypatch.setattr(nvrtc, "_run", lambda *args: runs.append(args) or run(*args))
    one, other = compile_sources(two(), Cache(tmp_path))
    assert len(runs) == 1
    assert (one.symbol, other.symbol) == ("one_fwd", "other_fwd")
    assert one.cubin == other.cubin and b"one_fwd" in one.cubin and b"other_fwd" in one.cubin
    again = compile_sources(two(), Cache(tmp_path))
    assert len(runs) == 1 and again == tuple(replace(each, cached=True) for each in (one, other))


def test_each_has_its_own_resources(tmp_path):
    shared = "__shared__ float s[100]; s[threadIdx.x] = p[n]; __syncthreads(); p[0] = s[99 - threadIdx.x];"
    one, other = compile_sources(two(second=shared), Cache(tmp_path))
    assert (one.resources.shared_bytes, other.resources.shared_bytes) == (0, 400)


def test_a_mistake_is_named_by_the_kernels_own_file_and_line(tmp_path):
    line = two()[1].text.splitlines().index("struct Params { float field; };") + 1
    broken = [replace(each, text=each.text.replace("float field", "zz field")) for each in two()]
    with pytest.raises(CompileError, match=rf"other\.cu\({line}\).*\"zz\""):
        compile_sources(broken, Cache(tmp_path))


def test_a_spill_is_its_own_kernels(tmp_path):
    spilling = """float a[128];
#pragma unroll
for (int i = 0; i < 128; i++) a[i] = p[i * 1024 + threadIdx.x];
__syncthreads();
#pragma unroll
for (int i = 0; i < 128; i++) p[i * 1024 + threadIdx.x] = a[i] * a[127 - i];"""
    sources = two(second=spilling)
    bounded = sources[1].text.replace("__global__ void", "__global__ void __launch_bounds__(1024, 2)")
    with pytest.raises(CompileError, match="other_fwd for sm_80: registers spill"):
        compile_sources([sources[0], replace(sources[1], text=bounded)], Cache(tmp_path))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_backward_is_one_program(arch, tmp_path):
    planned = plan(load_spec(SPECS / "a100_fa2.yaml"), arch, "backward")
    artifacts = compile_sources([render(kernel) for kernel in kernels(planned)], Cache(tmp_path))
    assert [artifact.symbol for artifact in artifacts] == [kernel.symbol for kernel in kernels(planned)]
    assert len({artifact.key for artifact in artifacts}) == 1
