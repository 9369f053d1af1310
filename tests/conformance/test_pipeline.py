"""TMA, mbarriers, wgmma, stmatrix and TMA stores together; and with a step left out."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from machine import Emulator, Machine, Map

from fagen.emu import settings
from fagen.errors import EmulatorError
from fagen.plan.tensor_map import TensorMap

TILES = 9
STEPS = re.findall(r"^  k(\w+),$", (Path(__file__).parent / "pipeline.cu").read_text(), re.MULTILINE)[1:]
# What the emulator calls the fault; the first word of its message.
KINDS = {
    "EmptyCount": "race|mbarrier|deadlock",
    "InitFence": "mbarrier",
    "InitSync": "mbarrier",
    "WaitEmpty": "race|mbarrier",
    "Expect": "mbarrier|race|uninitialised",
    "AllBytes": "mbarrier",
    "WaitFull": "race|mbarrier",
    "FenceB": "proxy fence",
    "SyncB": "race",
    "RegisterFence": "registers",
    "Commit": "race|registers|async",
    "Wait": "race|registers|async",
    "ArriveEmpty": "deadlock",
    "ArriveEmptyLate": "race",
    "WaitRead": "race",
    "SyncRead": "race",
    "FenceD": "proxy fence",
    "SyncD": "race",
    "StoreCommit": "race|async",
    "StoreWait": "async",
}


def run(machine: Machine, without: int) -> tuple[np.ndarray, np.ndarray]:
    """D as it came out, and as it must be."""
    random = np.random.default_rng(8)
    a, b = (random.integers(-2, 3, (rows, 64)).astype(np.float16) for rows in (64 * TILES, 64))
    d = np.zeros((64 * TILES, 64), np.float16)
    tensor = TensorMap("fp16", (64, 64 * TILES), (128,), (64, 64), 128)
    machine.run(
        "pipeline",
        [Map(a, tensor), Map(d, tensor), b, TILES, without],
        grid=1,
        threads=160,
        smem_bytes=1024 + 4 * 8192,
        # A constant for ptxas, which else mends what may be missing.
        defines={"WITHOUT": "p.without" if isinstance(machine, Emulator) else without},
    )
    return d, a @ b.T


def test_the_pipeline_multiplies_exactly(machine: Machine):
    d, expected = run(machine, without=0)
    assert np.array_equal(d, expected)


@pytest.mark.parametrize("step", STEPS)
def test_the_emulator_objects_to_a_step_left_out(step):
    for seed in range(5):
        with settings.override(seed=seed), pytest.raises(EmulatorError) as caught:
            run(Emulator(), without=1 + STEPS.index(step))
        assert re.match(rf"conformance_pipeline: ({KINDS[step]}) in the emulator", str(caught.value)), str(
            caught.value
        )
