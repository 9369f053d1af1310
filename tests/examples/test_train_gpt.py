"""The training example: its tiny run in the emulator trains as PyTorch's attention does."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest
import torch
import typer
from typer.testing import CliRunner

from fagen.paths import SPECS

FILE = SPECS.parent / "examples" / "train_gpt.py"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="an installed fagen has no examples")


@pytest.fixture(scope="module")
def gpt() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_gpt", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_gpt"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def run(gpt: ModuleType, *words: str):
    app = typer.Typer()
    app.command()(gpt.main)
    return CliRunner().invoke(app, words)


def test_the_text_is_the_documentation(gpt):
    text = gpt.corpus()
    assert len(text) > 30_000
    assert set(text.tolist()) == set(range(int(text.max()) + 1))


def test_a_curve_is_the_mean_of_windows(gpt):
    config = gpt.CONFIGS[gpt.Device.CUDA]
    losses = [float(i) for i in range(config.steps)]
    found = gpt.curve(losses, config)
    assert len(found) == config.steps // config.window
    assert found[0] == (config.window - 1) / 2
    assert gpt.gap(found, [x + 0.5 for x in found]) == 0.5


def test_in_the_emulator_it_trains_as_pytorch_does(gpt):
    result = run(gpt, "--device", "emu", "--compare")
    assert result.exit_code == 0, result.output
    assert "fagen-v2" in result.stdout and "sdpa, seed 1" in result.stdout
    apart, noise = (float(line.split()[-1]) for line in result.stdout.splitlines()[-2:])
    assert 10 * apart < noise  # the text, and the noise with it, changes with the documentation


def test_losses_that_part_by_more_than_noise_are_an_error(gpt, monkeypatch):
    steps = gpt.CONFIGS[gpt.Device.EMULATOR].steps
    fake = {"fagen-v2": 3.0, "sdpa": 2.0}
    monkeypatch.setattr(gpt, "train", lambda kind, *_: [fake[kind]] * steps)
    result = run(gpt, "--device", "emu", "--compare")
    assert result.exit_code == 1
    assert "more than noise" in result.output


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["fagen-v2", "fagen-v3"])
def test_on_a_gpu_it_trains_as_pytorch_does(gpt, kind):
    if kind == "fagen-v3" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("v3 is for sm_90a")
    result = run(gpt, "--attention", kind, "--compare")
    assert result.exit_code == 0, result.output
