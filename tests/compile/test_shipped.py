"""The v3 kernels that ship, under either mask: compiled in seconds, everything held in registers."""

from __future__ import annotations

import time

import pytest

from fagen.compile.cache import Cache
from fagen.compile.nvrtc import compile_source
from fagen.emit.render import render
from fagen.paths import SPECS
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

SECONDS = 5.0  # of CPU time, which other processes on the machine do not add to


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("path", sorted(SPECS.glob("*_fa3*.yaml")), ids=lambda path: path.stem)
def test_a_v3_kernel_compiles_in_seconds_without_spills_and_notes(path, mask):
    source = render(plan(load_spec(path, {"problem.mask": mask})))
    started = time.process_time()
    artifact = compile_source(source, Cache(None))
    assert time.process_time() - started <= SECONDS
    assert artifact.resources.spill_store_bytes == artifact.resources.stack_bytes == 0
    assert artifact.resources.warnings == ()  # C75xx notes among them
