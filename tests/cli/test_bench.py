from __future__ import annotations

import json

import pytest
import torch

from fagen.bench import compare, machine
from fagen.bench.compare import OURS, Outcome, Result

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@pytest.fixture
def runs(monkeypatch):
    """Replaces the GPU: each case gives these outcomes in turn, an exception is raised."""

    def replace(*outcomes):
        left = iter(outcomes)

        def run(case):
            outcome = next(left)
            if isinstance(outcome, BaseException):
                raise outcome
            return Result(case, 2e-3, {OURS: outcome, "torch flash": Outcome(1e-3, (2e-3,) * 4)})

        monkeypatch.setattr(machine, "arch_of_device", lambda _: "sm_90a")
        monkeypatch.setattr(compare, "build", lambda todo: None)
        monkeypatch.setattr(compare, "run", run)

    return replace


GOOD = Outcome(1e-3, (1e-3,) * 4)


@needs_no_gpu
def test_without_a_gpu_it_says_what_to_do(fagen, a100):
    result = fagen("bench", a100)
    assert result.exit_code == 1
    assert "fagen doctor" in result.stderr


@pytest.mark.parametrize("text", ["", "2048,", "0", "-1", "2k"])
def test_lengths_that_are_none_are_a_usage_error(fagen, a100, text):
    result = fagen("bench", a100, f"--seqlens={text}")
    assert result.exit_code == 2
    assert "2048,8192" in result.stderr


def test_a_file_without_a_directory_is_a_usage_error(fagen, a100, tmp_path):
    assert fagen("bench", a100, "--json", tmp_path / "no" / "out.json").exit_code == 2


def test_prints_a_row_per_case_and_the_summary_last(fagen, a100, runs):
    runs(GOOD, GOOD)
    result = fagen("bench", a100, "--seqlens", "128")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert sum(line.startswith("a100_fa2") for line in lines) == 2
    assert lines[-1].startswith("2.000 x torch flash (geometric mean of 2)")


def test_a_wrong_op_is_reported_and_exits_1(fagen, a100, runs):
    runs(GOOD, Outcome(1.0, problem="wrong: error 1.0"))
    result = fagen("bench", a100, "--seqlens", "128")
    assert result.exit_code == 1
    assert "a100_fa2, mask causal, S 128: fagen wrong: error 1.0" in result.stderr
    assert "geometric mean of 1" in result.stdout


def test_ctrl_c_keeps_what_is_known(fagen, a100, runs, tmp_path):
    runs(GOOD, KeyboardInterrupt())
    result = fagen("bench", a100, "--seqlens", "128", "--json", tmp_path / "out.json")
    assert result.exit_code == 130
    assert "geometric mean of 1" in result.stdout
    assert len(json.loads((tmp_path / "out.json").read_text())["cases"]) == 1


def test_backward_times_the_backward(fagen, a100, runs, tmp_path):
    runs(GOOD, GOOD)
    file = tmp_path / "out.json"
    assert fagen("bench", a100, "--seqlens", "128", "--backward", "--json", file).exit_code == 0
    cases = json.loads(file.read_text())["cases"]
    assert [case["pass"] for case in cases] == ["backward"] * 2
    assert cases[0]["flops"] == 10 * 128 * 16 * 128 * 128 * 128


@pytest.mark.gpu
def test_on_a_gpu(fagen, a100, tmp_path):
    result = fagen("bench", a100, "--seqlens", "512", "--json", tmp_path / "out.json")
    assert result.exit_code == 0, result.stderr
    assert "torch flash" in result.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["machine"]["device"] == torch.cuda.get_device_name()
