"""Plans of the quantising kernels: they fit, they compile without spills, their launches are right."""

from __future__ import annotations

import pytest

from fagen.compile.cache import Cache
from fagen.compile.nvrtc import compile_source
from fagen.emit.quantize import render
from fagen.errors import PlanError
from fagen.hw.arch import ARCHES
from fagen.plan import params
from fagen.plan.maps import Operand, Strides
from fagen.plan.quantize import HEAD_DIMS, Scales, Step, arguments, kernel

HOPPER = ARCHES["sm_90a"]
KINDS: list[tuple[Step, bool, bool]] = [
    ("block", False, False),
    ("block", True, False),
    ("block", False, True),
    ("amax", True, False),
    ("given", True, False),
    ("given", False, True),
]


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_what_is_resident_fits_an_sm(head_dim):
    for kind in KINDS:
        planned = kernel(HOPPER, "bf16", "e4m3", head_dim, *kind)
        assert planned.threads % 128 == 0 and planned.threads <= 512
        assert planned.ctas_per_sm * planned.threads <= HOPPER.max_threads_per_sm
        used = planned.smem_bytes + HOPPER.smem_reserved_per_cta
        assert planned.ctas_per_sm * used <= HOPPER.smem_per_sm
        in_flight = planned.ctas_per_sm * 128 * head_dim * 2
        assert (
            in_flight >= 32 * 1024
        )  # of the next blocks, while one is worked on: more than latency asks for


@pytest.mark.parametrize("head_dim", [64, 128, 224, 256])
def test_kernels_compile_without_spills(head_dim):
    for kind in KINDS:
        source = render(kernel(HOPPER, "bf16", "e4m3", head_dim, *kind))
        assert compile_source(source, Cache(None)).resources.spill_store_bytes == 0


def test_dtypes_reach_the_kernel():
    text = render(kernel(HOPPER, "fp16", "e5m2", 64, "block")).text
    assert "using T = __half;" in text and "using F8 = fagen::e5m2;" in text
    compile_source(render(kernel(HOPPER, "fp16", "e5m2", 64, "block", True)), Cache(None))


def test_a_kernel_has_the_code_of_a_feature_only_where_it_is_on():
    for step, hadamard, transposed in KINDS:
        text = render(kernel(HOPPER, "bf16", "e4m3", 64, step, hadamard, transposed)).text
        assert ("Hadamard" in text) == hadamard
        assert ("store_columns" in text) == transposed
        assert ("reduce_max" in text) == (step == "amax") == ("p.out" not in text)


def test_an_arch_without_8_bit_floats_is_refused():
    with pytest.raises(PlanError, match="sm_80 has no 8-bit floats; allowed: sm_89 and newer"):
        kernel(ARCHES["sm_80"], "bf16", "e4m3", 64, "block")
    with pytest.raises(PlanError, match="bytes of shared memory; allowed on sm_89: "):
        kernel(ARCHES["sm_89"], "bf16", "e4m3", 256, "block")


def test_the_grid_is_what_runs_at_a_time_or_less():
    planned = kernel(HOPPER, "bf16", "e4m3", 128, "block")
    strides = Strides(batch=1000 * 512, row=512, head=128)

    def launch(rows: int):
        return arguments(planned, Operand(2, rows, 4, 128, strides), strides, 0, Scales(0, 0, 4, 1), 132)

    grid, own = launch(129)
    assert (grid.grid, own.numbers["blocks"]) == (2 * 4 * 2, 2)
    assert launch(100_000)[0].grid == 132 * planned.ctas_per_sm
    packed = params.pack(own.params, own.numbers | dict.fromkeys(own.addresses, 0))
    assert len(packed) == params.struct_bytes(own.params)
    with pytest.raises(PlanError, match=r"rows is 2,147,483,647; allowed: up to 2,147,483,519"):
        launch(2**31 - 1)
