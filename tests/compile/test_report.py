from __future__ import annotations

from contextlib import nullcontext

import pytest
from tiny import source

from fagen.compile import report
from fagen.compile.cache import Cache
from fagen.compile.nvrtc import compile_source
from fagen.compile.report import SMALL_SPILL, Resources, check
from fagen.emit.source import Source
from fagen.errors import CompileError

# 128 live values per thread where ptxas may use 32 registers.
SPILLING = """
float a[128];
#pragma unroll
for (int i = 0; i < 128; i++) a[i] = p[i * 1024 + threadIdx.x];
__syncthreads();
#pragma unroll
for (int i = 0; i < 128; i++) p[i * 1024 + threadIdx.x] = a[i] * a[127 - i];
"""
# An array indexed at run time lives in local memory.
ON_STACK = "float a[64]; for (int i = 0; i < 64; i++) a[(i * n) & 63] = p[i]; p[0] = a[n & 63];"
CALLED_ON_STACK = f"__device__ __noinline__ void called(float* p, int n) {{ {ON_STACK} }}"
# Without a register count at entry, ptxas ignores setmaxnreg and says so (C7508).
IGNORED_SETMAXNREG = 'asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); p[threadIdx.x] = 1;'


@pytest.fixture
def compiled(tmp_path):
    return lambda *args, **fields: compile_source(source(*args, **fields), Cache(tmp_path))


def test_resources_are_read_from_the_log(compiled):
    shared = "__shared__ float s[100]; s[threadIdx.x] = p[n]; __syncthreads(); p[0] = s[99 - threadIdx.x];"
    resources = compiled(shared).resources
    assert 0 < resources.registers < 32
    assert (resources.shared_bytes, resources.barriers) == (400, 1)
    assert resources.stack_bytes == resources.spill_store_bytes == resources.spill_load_bytes == 0
    assert resources.warnings == ()


def test_a_spill_fails_the_build_with_its_numbers_and_the_key_that_allows_it(compiled):
    with pytest.raises(CompileError, match=r"tiny0_fwd for sm_80: registers spill \([1-9]\d* bytes") as error:
        compiled(SPILLING, bounds="__launch_bounds__(1024, 2)")
    assert "32 registers" in str(error.value)
    assert "schedule.allow: [spills]" in str(error.value)


def test_a_spill_that_is_allowed_passes_and_is_reported(compiled):
    artifact = compiled(SPILLING, bounds="__launch_bounds__(1024, 2)", allow=("spills",))
    assert artifact.resources.spill_store_bytes > 0
    assert artifact.resources.spill_load_bytes > 0
    assert any("spilled" in warning for warning in artifact.resources.warnings)


def test_allowing_it_once_does_not_allow_it_from_the_cache(compiled):
    compiled(SPILLING, bounds="__launch_bounds__(1024, 2)", allow=("spills",))
    with pytest.raises(CompileError, match="spill"):
        compiled(SPILLING, bounds="__launch_bounds__(1024, 2)")


@pytest.mark.parametrize(
    ("head", "body"), [("", ON_STACK), (CALLED_ON_STACK, "called(p, n); called(p + 1, n);")]
)
def test_local_memory_fails_the_build_unless_allowed(compiled, head, body):
    with pytest.raises(CompileError, match=r"256 bytes of local memory.*schedule\.allow: \[stack\]"):
        compiled(body, head=head)
    assert compiled(body, head=head, allow=("stack",)).resources.stack_bytes == 256


@pytest.mark.parametrize("spilled", [4, SMALL_SPILL])
def test_a_spill_that_passes_hides_no_local_memory(spilled):
    source = Source("tiny", "tiny_fwd", "sm_80", "", threads=32, smem_bytes=0)
    check(source, Resources(255, spilled + 8, spilled, spilled, 1, 0, ()))  # its slots, aligned
    with pytest.raises(CompileError, match=rf"bytes of local memory .* {spilled} of them spills.*\[stack\]"):
        check(source, Resources(255, spilled + 256, spilled, spilled, 1, 0, ()))


def test_a_c75xx_note_fails_the_build_whatever_is_allowed(compiled):
    with pytest.raises(CompileError, match=r"tiny0_fwd for sm_90a: \(C7508\).*setmaxnreg"):
        compiled(IGNORED_SETMAXNREG, arch="sm_90a", allow=("spills", "stack"))


def test_a_log_of_another_kernel_is_refused():
    log = "ptxas info    : Compiling entry function 'other' for 'sm_80'\nptxas info    : Used 8 registers"
    with pytest.raises(CompileError, match="expected mine; NVRTC compiled: other"):
        report.parse(log, ["mine"])


@pytest.mark.parametrize(("spilled", "passes"), [(SMALL_SPILL, True), (SMALL_SPILL + 4, False)])
def test_parked_loop_invariants_pass_and_more_does_not(spilled, passes):
    resources = Resources(255, spilled, spilled, spilled, 1, 0, ())
    source = Source("tiny", "tiny_fwd", "sm_80", "", threads=32, smem_bytes=0)
    with nullcontext() if passes else pytest.raises(CompileError, match=f"{spilled} bytes stored"):
        check(source, resources)
