from __future__ import annotations

import pytest
import torch

from fagen.bench import machine
from fagen.bench.machine import arch_of_device
from fagen.errors import LaunchError


def test_versions_are_known_without_a_gpu():
    found = machine.machine()
    assert found["torch"] == torch.__version__
    assert found["nvrtc"].startswith("13.")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_what_works_without():
    with pytest.raises(LaunchError, match="fagen doctor"):
        arch_of_device(0)


@pytest.mark.gpu
def test_a_gpu_has_a_name():
    assert machine.machine()["device"] == torch.cuda.get_device_name()
