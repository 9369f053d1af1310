"""Compile, load and launch on the GPU, with a kernel that rests on no template."""

from __future__ import annotations

import pytest
import torch

from fagen.compile.cache import Cache
from fagen.compile.nvrtc import compile_source
from fagen.emit.source import Source
from fagen.errors import LaunchError
from fagen.hw.arch import ARCHES, arch_of_capability
from fagen.plan.arguments import Arguments
from fagen.plan.launch import Launch, Scalars
from fagen.plan.params import Param
from fagen.runtime.launch import Launcher
from fagen.runtime.module import load

pytestmark = pytest.mark.gpu

SMEM = 96 * 1024  # above the 48 KiB that a kernel gets unasked
CTAS, THREADS = 100_000, 128  # more CTAs than gridDim.y allows
# out[cta] = q[cta] * scale_log2 + the CTA's number, carried through the last words of shared memory.
BODY = f"""
extern __shared__ float shared[];
float* last = shared + {SMEM // 4 - THREADS};
last[threadIdx.x] = p.q[blockIdx.x] * p.scale_log2 + blockIdx.x;
__syncthreads();
if (threadIdx.x == 0) p.out[blockIdx.x] = last[blockDim.x - 1];
"""
ARGUMENTS = Arguments(
    params=(
        Param("q", "const float*", ""),
        Param("out", "float*", ""),
        Param("batch", "int32_t", ""),
        Param("scale_log2", "float", ""),
    ),
    addresses=("q", "k", "v", "out"),
    numbers={"batch": 7, "scale_log2": 2.0},
    maps={},
    extents={},
)
LAUNCH = Launch(CTAS, 1, Scalars(*[0] * len(Scalars._fields)))


def kernel_source(arch: str) -> Source:
    ctypes = {"int32_t": "int"}
    fields = "".join(f"{ctypes.get(p.ctype, p.ctype)} {p.name};\n" for p in ARGUMENTS.params)
    symbol = "runtime_test_fwd"
    text = (
        f"struct Params {{\n{fields}}};\n"
        f'extern "C" __global__ void {symbol}(const __grid_constant__ Params p) {{{BODY}}}\n'
    )
    return Source("runtime_test", symbol, arch, text, THREADS, SMEM)


@pytest.fixture
def artifact(tmp_path):
    own = arch_of_capability(torch.cuda.get_device_capability(0)).name
    return compile_source(kernel_source(own), Cache(tmp_path))


@pytest.fixture
def launcher(artifact):
    return Launcher(load(artifact, THREADS, SMEM, 0), LAUNCH, ARGUMENTS)


@pytest.fixture
def tensors():
    q = torch.arange(CTAS, dtype=torch.float32, device="cuda:0") % 97
    return q, torch.full_like(q, float("nan"))


def launch(launcher: Launcher, q: torch.Tensor, out: torch.Tensor) -> None:
    launcher(torch.cuda.current_stream().cuda_stream, q.data_ptr(), 0, 0, out.data_ptr())


def expected(q: torch.Tensor) -> torch.Tensor:
    return q * 2 + torch.arange(CTAS, device=q.device)


def test_a_kernel_reads_its_parameters_and_writes_through_its_pointers(launcher, tensors):
    q, out = tensors
    launch(launcher, q, out)
    assert torch.equal(out, expected(q))


def test_it_runs_on_the_stream_it_is_given(launcher, tensors):
    q, out = tensors
    values = q + 1
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        q.copy_(values)
        launch(launcher, q, out)
        result = out.clone()
        torch.cuda.current_stream().synchronize()
    assert torch.equal(result, expected(values))


def test_a_first_call_inside_capture_is_replayed(artifact, tensors):
    q, out = tensors
    torch.cuda.synchronize()
    # No other test asks for this much shared memory, so the kernel is not loaded yet.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(Launcher(load(artifact, THREADS, SMEM + 16, 0), LAUNCH, ARGUMENTS), q, out)
    for _ in range(2):
        q += 1
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(out, expected(q))


def test_a_kernel_of_another_arch_is_refused_by_name(tmp_path):
    own = arch_of_capability(torch.cuda.get_device_capability(0)).name
    other = next(name for name in ARCHES if name != own)
    with pytest.raises(LaunchError, match=f"is built for {other}; device 0 is .*{own}"):
        load(compile_source(kernel_source(other), Cache(tmp_path)), THREADS, SMEM, 0)


def test_more_shared_memory_than_the_chip_has_names_the_bytes(artifact):
    with pytest.raises(LaunchError, match="with 1048576 bytes of dynamic shared memory"):
        load(artifact, THREADS, 1 << 20, 0)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_it_runs_on_the_kernels_device_whatever_is_current(artifact):
    q = torch.ones(CTAS, device="cuda:1")
    out = torch.empty_like(q)
    torch.cuda.synchronize(1)
    launcher = Launcher(load(artifact, THREADS, SMEM, 1), LAUNCH, ARGUMENTS)
    launcher(torch.cuda.current_stream(1).cuda_stream, q.data_ptr(), 0, 0, out.data_ptr())
    assert torch.equal(out, expected(q))
    assert torch.cuda.current_device() == 0
