"""The kernels that ship: compiled in seconds; v3's forward, under either mask, held in registers."""

from __future__ import annotations

import time

import pytest

from fagen.compile.cache import Cache
from fagen.compile.nvrtc import compile_source
from fagen.emit.render import render
from fagen.paths import SPECS
from fagen.plan.kernels import kernels, main_kernel
from fagen.plan.planner import plan, plans
from fagen.spec.load import load_spec

SECONDS = 5.0  # of CPU time, which other processes on the machine do not add to


_compiled: set[str] = set()  # texts of the kernels of tuned specs, without their names


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_kernel_of_every_pass_compiles_in_seconds(path):
    for kernel in (kernel for one in plans(load_spec(path)) for kernel in kernels(one)):
        started = time.process_time()
        compile_source(render(kernel), Cache(None))  # raises for more than small spills
        assert time.process_time() - started <= SECONDS


@pytest.mark.parametrize("path", sorted(SPECS.glob("tuned/*.yaml")), ids=lambda path: path.stem)
def test_every_kernel_that_was_tuned_compiles(path):
    spec = load_spec(path)
    for source in (render(kernel) for one in plans(spec) for kernel in kernels(one)):
        text = source.text.replace(spec.name, "")  # several shapes have the same kernels
        if text not in _compiled:
            compile_source(source, Cache(None))
            _compiled.add(text)


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("path", sorted(SPECS.glob("*_fa3*.yaml")), ids=lambda path: path.stem)
def test_a_v3_kernel_compiles_in_seconds_without_spills_and_notes(path, mask):
    source = render(main_kernel(plan(load_spec(path, {"problem.mask": mask}))))
    started = time.process_time()
    artifact = compile_source(source, Cache(None))
    assert time.process_time() - started <= SECONDS
    assert artifact.resources.spill_store_bytes == artifact.resources.stack_bytes == 0
    assert artifact.resources.warnings == ()  # C75xx notes among them
