from __future__ import annotations

import pytest
import torch

from fagen.cli.device import usual_device
from fagen.paths import SPECS
from fagen.spec.load import load_spec

FP8 = load_spec(SPECS / "h100_fp8.yaml")


@pytest.fixture
def gpu(monkeypatch):
    """Pretends that device 0 has a compute capability."""

    def pretend(capability: tuple[int, int]) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)

    return pretend


def test_a_gpu_that_runs_the_family_is_taken(gpu, capsys):
    gpu((9, 0))
    assert usual_device(FP8, "emu") == "0"
    assert not capsys.readouterr().err


def test_one_that_does_not_is_left_and_said_so(gpu, capsys):
    gpu((8, 0))
    assert usual_device(FP8, "emu") == "emu"
    assert capsys.readouterr().err == "CUDA device 0 is sm_80, which does not run family v3: --device emu\n"
    assert usual_device(load_spec(SPECS / "a100_fa2.yaml"), "emu") == "0"


def test_without_a_gpu_it_is_the_other(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert usual_device(FP8, "model") == "model"
    assert not capsys.readouterr().err
