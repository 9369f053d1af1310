"""The tuner's processes on real GPUs: what faults or hangs there goes no further."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median

import pytest
import torch
from tune_faults import WORK_WITH_FAULTS

from fagen.paths import SPECS
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec
from fagen.spec.model import Spec
from fagen.tune.gpu import LocalCompiler, LocalGpu
from fagen.tune.job import Batch
from fagen.tune.local import local_workers
from fagen.tune.workers import Crew

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

SPEC = load_spec(SPECS / "h200_fa2.yaml", {"problem.mask": "causal", "problem.head_dim": 64})
SHAPE = Shape(2, 1024, 1024, 4, 2)
TUNER = """
import sys
from cuda.bindings.driver import cuDevicePrimaryCtxGetState
from fagen.tune.local import local_workers
with local_workers() as crew:
    states = [cuDevicePrimaryCtxGetState(device) for device in range(crew.gpus)]
    print("torch" in sys.modules, [active for _, flags, active in states])
"""
LONG = Shape(2, 16384, 16384, 16, 16)


def named(name: str) -> Spec:
    return load_spec(SPEC, {"name": name})


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    """One GPU, where some variants fault."""
    with Crew([LocalGpu(0, WORK_WITH_FAULTS, patience=15)], [LocalCompiler(WORK_WITH_FAULTS)]) as made:
        yield made


@pytest.mark.parametrize(("faulty", "problem"), [("faults", "CUDA error"), ("hangs", "no sign of life")])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_kernel_that_faults_is_named_and_spoils_nothing(crew, direction, faulty, problem):
    asked = Batch((SPEC, named(faulty), SPEC), SHAPE, direction, rounds=5)
    ((_, (first, fault, last)),) = crew.time([asked])
    assert problem in fault.problem and not fault.seconds
    assert 1e-6 < median(first.seconds) < 1e-2 and len(last.seconds) == 5
    assert crew.check(SPEC, SHAPE, direction) == ""
    x = torch.ones(8, 8, device="cuda")  # this process's context
    assert torch.equal(x @ x, torch.full_like(x, 8))


def test_inputs_that_do_not_fit_are_a_problem_in_words(crew):
    huge = Shape(64, 2**20, 2**20, 64, 64)
    ((_, (timing,)),) = crew.time([Batch((SPEC,), huge, "forward", rounds=1)])
    assert timing.problem.startswith("shape: is 64,1048576,")
    assert crew.check(SPEC, SHAPE, "forward") == ""


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_check_of_long_sequences_takes_about_a_second(crew, direction):
    crew.check(SPEC, SHAPE, direction)  # builds
    start = time.monotonic()
    assert crew.check(SPEC, LONG, direction) == ""
    assert time.monotonic() - start < 3


def test_the_tuners_own_process_has_neither_torch_nor_a_context():
    done = subprocess.run([sys.executable, "-c", TUNER], capture_output=True, text=True, check=True)
    assert done.stdout == f"False {[0] * torch.cuda.device_count()}\n"


def test_the_workers_of_this_machine():
    with local_workers() as crew:
        assert crew.gpus == torch.cuda.device_count()
        assert crew.kind.where.gpu == torch.cuda.get_device_name(0)
        specs = [load_spec(SPEC, {"schedule.tile.kv": size}) for size in (64, 128)]
        assert [problem for _, problem in crew.build(specs, "forward")] == ["", ""]
        batches = [Batch(tuple(specs), SHAPE, "forward", rounds=5)] * (2 * crew.gpus)
        found = [timings for _, timings in crew.time(batches)]
        assert len(found) == len(batches)
        assert all(timing.seconds for timings in found for timing in timings)
