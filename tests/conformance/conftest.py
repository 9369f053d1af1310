"""One kernel source per instruction family, run on the emulator and on an H200; expectations are numpy's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from machine import Emulator, Gpu, Machine


@pytest.fixture(params=["emu", pytest.param("gpu", marks=pytest.mark.gpu)], scope="session")
def machine(request) -> Machine:
    if request.param == "emu":
        return Emulator()
    import torch

    if torch.cuda.get_device_capability(0) != (9, 0):
        pytest.skip("needs a GPU of compute capability 9.0")
    return Gpu()
