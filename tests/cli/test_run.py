from __future__ import annotations

import json

import pytest
import torch

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


SMALL = (
    *("--set", "problem.head_dim=16", "--set", "schedule.tile={q: 32, kv: 32}"),
    *("--set", "schedule.roles.math.warps=2", "--set", "schedule.backward.tile={q: 32, kv: 32}"),
    *("--shape", "1,40,70,2,1"),
)


def test_runs_in_the_emulator_and_claims_no_speed(fagen, a100):
    result = fagen("run", a100, "--device", "emu", *SMALL, "--seed", "3", "--seeds", "2")
    assert result.exit_code == 0
    assert "in the emulator" in result.stdout and "emulated" in result.stdout
    assert "forward" in result.stdout and "backward" in result.stdout
    assert result.stdout.count("allowed") == 5, "out, LSE, dq, dk, dv"
    assert "seeds 3, 4" in result.stdout
    assert "TFLOP/s" not in result.stdout and "predicted" not in result.stdout


@needs_no_gpu
def test_without_a_gpu_it_is_the_emulator_by_itself(fagen, a100):
    result = fagen("run", a100, *SMALL)
    assert result.exit_code == 0
    assert "in the emulator" in result.stdout


def test_a_pass_that_is_not_built_is_not_run(fagen, a100):
    result = fagen("run", a100, "--device", "emu", *SMALL, "--set", "problem.passes=[forward]")
    assert result.exit_code == 0
    assert result.stdout.count("allowed") == 2 and "backward" not in result.stdout


def test_the_trace_is_written(fagen, a100, tmp_path):
    path = tmp_path / "trace.json"
    result = fagen("run", a100, "--device", "emu", *SMALL, "--trace", path)
    assert result.exit_code == 0 and f"trace    {path}" in result.stdout
    assert json.loads(path.read_text())["traceEvents"]


def test_without_a_host_compiler_it_says_what_to_install(fagen, a100, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    result = fagen("run", a100, "--device", "emu", "--set", "problem.head_dim=24")
    assert result.exit_code == 1
    assert "C++ compiler" in result.stderr and "install g++" in result.stderr


@needs_no_gpu
def test_a_gpu_that_is_not_there_says_what_works_without(fagen, a100):
    result = fagen("run", a100, "--device", "0")
    assert result.exit_code == 1
    assert "fagen doctor" in result.stderr and "--device emu" in result.stderr


@pytest.mark.parametrize("device", ["cpu", "-1", "cuda:0"])
def test_a_device_that_is_none_is_a_usage_error(fagen, a100, device):
    result = fagen("run", a100, "--device", device)
    assert result.exit_code == 2
    assert f"is {device}; allowed: emu, or" in result.stderr


def test_a_trace_that_cannot_be_written_is_refused_before_the_run(fagen, a100, tmp_path):
    result = fagen("run", a100, "--device", "emu", *SMALL, "--trace", tmp_path / "none" / "trace.json")
    assert result.exit_code == 2
    assert "largest error" not in result.stdout and "--trace" in result.stderr


@pytest.mark.parametrize("option", [("--seeds", "2"), ("--trace", "trace.json")])
def test_what_only_the_emulator_takes_is_not_ignored(fagen, a100, option):
    result = fagen("run", a100, "--device", "0", *option)
    assert result.exit_code == 2
    assert "only with --device emu" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shape", "2,128"), "B,Sq,Sk,Hq,Hkv"),
        (("--shape", "1,0,64,1,1"), "Sq and Sk must be at least 1"),
        (("--shape", "1,64,0,1,1"), "Sq and Sk must be at least 1"),
        (("--seed", 2**32), "4294967295"),
    ],
)
def test_arguments_that_it_does_not_take_are_usage_errors(fagen, a100, words, message):
    result = fagen("run", a100, *words)
    assert result.exit_code == 2 and message in result.stderr.replace("\n", " ")


def test_a_shape_that_does_not_fit_into_memory_is_named(fagen, a100):
    result = fagen("run", a100, "--device", "emu", "--shape", "1000000,1000000,1000000,64,64")
    assert result.exit_code == 1
    assert "error: shape: is 1000000,1000000,1000000,64,64; allowed: what fits into memory" in result.stderr


@pytest.mark.gpu
def test_reports_error_and_time_beside_what_is_allowed_and_predicted(fagen, a100):
    result = fagen("run", a100, "--shape", "1,256,256,2,2", "--set", "problem.head_dim=64")
    assert result.exit_code == 0
    assert result.stdout.count("allowed") == 5
    assert result.stdout.count("predicted") == 4


@pytest.mark.gpu
def test_a_device_that_is_not_there_is_named(fagen, a100):
    result = fagen("run", a100, "--device", "99")
    assert result.exit_code == 1
    assert "device: is 99" in result.stderr
