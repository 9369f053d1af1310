"""What is said of a broken kernel: the kind of fault, the kernel's line, the thread, the buffer."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fagen.emit.render import render
from fagen.emu import launch
from fagen.emu.launch import Emulated
from fagen.errors import EmulatorError
from fagen.paths import SPECS
from fagen.plan.arguments import arguments
from fagen.plan.kernels import main_kernel
from fagen.plan.launch import Shape
from fagen.plan.launch import launch as plan_launch
from fagen.plan.maps import Strides
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

PLAN = plan(
    load_spec(
        SPECS / "a100_fa2.yaml",
        {
            "problem.head_dim": 16,
            "schedule": {
                "tile": {"q": 32, "kv": 32},
                "stages": {"kv": 3},
                "roles": {"math": {"warps": 2}},
                "q_operand": "shared",
            },
        },
    )
)


KERNEL = main_kernel(PLAN)


@pytest.fixture
def refusal(monkeypatch):
    """Runs the kernel with `line` replaced, on 32 queries and 256 keys; the error's text."""

    def run(line: str, by: str = "", **scalars: int) -> str:
        source = render(KERNEL)
        assert source.text.count(line) == 1
        changed = dataclasses.replace(source, text=source.text.replace(line, by))
        monkeypatch.setattr(launch, "render", lambda _: changed)
        sizes = {"q": 32, "k": 256, "v": 256, "out": 32}
        tensors = {name: torch.ones(1, n, 1, 16, dtype=torch.bfloat16) for name, n in sizes.items()}
        shape = Shape(1, 32, 256, 1, 1)
        to_launch = plan_launch(PLAN, shape, 0.25)
        strides = {name: Strides(*x.stride()[:3]) for name, x in tensors.items()}
        given = arguments(KERNEL, shape, to_launch, strides)
        addresses = {name: x.data_ptr() for name, x in tensors.items()}
        with pytest.raises(EmulatorError) as error:
            Emulated(KERNEL).launcher(to_launch, given)(0, *(addresses.get(x, 0) for x in given.addresses))
        return str(error.value)

    return run


def line_of(text: str) -> int:
    before, _, _ = render(KERNEL).text.partition(text)
    return before.count("\n") + 1


def test_a_missing_wait_is_a_race(refusal):
    text = refusal("ring.wait_full(read);")
    assert "race in the emulator, seed 0" in text
    assert "k[0]" in text or "q" in text
    assert "cp.async" in text and "thread" in text
    assert f"forward.cu:{line_of('mma::gemm<T, Cfg::KTile::kCols>(')}" in text, "the read"
    assert "forward.cu:" in text.split("cp.async")[1], "the copy"


def test_a_missing_arrival_is_a_deadlock_that_lists_barriers_and_waiters(refusal):
    text = refusal("ring.arrive_empty(read);")
    assert "deadlock in the emulator" in text
    assert f"forward.cu:{line_of('ring.wait_empty(fill);')}" in text
    for barrier in (f"{kind}[{stage}]" for kind in ("full", "empty") for stage in range(3)):
        assert barrier in text
    assert "threads 0-63 wait" in text


def test_a_stray_copy_names_the_tensor_and_the_thread(refusal):
    text = refusal("k + first * p.k_row_stride,", "k + (first + 4096) * p.k_row_stride,")
    assert "out of bounds in the emulator" in text
    assert f"forward.cu:{line_of('k_loader.template load')}" in text
    assert "of CTA (0, 0, 0)" in text
