from __future__ import annotations

import subprocess

import pytest
import torch

from fagen.bench import machine
from fagen.bench.machine import arch_of_device
from fagen.errors import LaunchError


def answers(text: str):
    return lambda *_, **__: subprocess.CompletedProcess((), 0, stdout=text)


@pytest.fixture
def smi(monkeypatch):
    """What is read of an `nvidia-smi` that prints this; None: there is none."""

    def read(text: str | None) -> dict[str, str]:
        monkeypatch.setattr(machine.shutil, "which", lambda _: None if text is None else "nvidia-smi")
        monkeypatch.setattr(machine.subprocess, "run", answers(text or ""))
        return machine._smi("GPU-1")

    return read


def test_clocks_are_read_where_nvidia_smi_is(smi):
    assert smi("580.65, 1980 MHz, 1980 MHz, 3201 MHz, 700.00 W\n") == {
        "driver": "580.65",
        "sm_clock": "1980 MHz",
        "sm_clock_max": "1980 MHz",
        "memory_clock": "3201 MHz",
        "power_limit": "700.00 W",
    }


@pytest.mark.parametrize("text", [None, "No devices were found\n", ""])
def test_clocks_are_left_out_where_it_is_not(smi, text):
    assert smi(text) == {}


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
