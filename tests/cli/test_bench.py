from __future__ import annotations

import json

import pytest
import torch

from fagen.bench import machine, run
from fagen.bench.compare import DETERMINISTIC, OURS, Outcome, Result
from fagen.paths import SPECS

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
MODELS = SPECS / "shapes" / "models.yaml"


@pytest.fixture
def runs(monkeypatch):
    """Replaces the GPU: each case gives these outcomes in turn, an exception is raised."""

    def replace(*outcomes):
        left = iter(outcomes)

        def one(case):
            outcome = next(left)
            if isinstance(outcome, BaseException):
                raise outcome
            return Result(case, 2e-3, {OURS: outcome, "torch flash": Outcome(1e-3, (2e-3,) * 4)})

        monkeypatch.setattr(machine, "arch_of_device", lambda _: "sm_90a")
        monkeypatch.setattr(run, "build", lambda todo: None)
        monkeypatch.setattr(run, "run", one)

    return replace


def took(seconds: float) -> Outcome:
    return Outcome(1e-3, (seconds,) * 4, peak_bytes=100)


GOOD = took(1e-3)


@needs_no_gpu
def test_without_a_gpu_it_says_what_to_do(fagen, a100):
    result = fagen("bench", a100)
    assert result.exit_code == 1
    assert "fagen doctor" in result.stderr


@pytest.mark.parametrize("text", ["", "2048,", "0", "-1", "2k", "2147483648", "9" * 5000], ids=range(7))
def test_lengths_that_are_none_are_a_usage_error(fagen, a100, text):
    result = fagen("bench", a100, f"--seqlens={text}")
    assert result.exit_code == 2
    assert "2048,8192" in result.stderr


@pytest.mark.parametrize("text", ["", "fwd,", "backward", "fwd bwd"])
def test_modes_that_are_none_are_a_usage_error(fagen, a100, text):
    result = fagen("bench", a100, f"--mode={text}")
    assert result.exit_code == 2
    assert "fwd, bwd, fwd+bwd" in result.stderr


def test_a_file_of_shapes_says_all_lengths(fagen, a100):
    result = fagen("bench", a100, "--shapes", MODELS, "--seqlens", "128")
    assert result.exit_code == 2
    assert "without --shapes" in result.stderr


@pytest.mark.parametrize("option", ["--json", "--markdown", "--html"])
def test_a_file_without_a_directory_is_a_usage_error(fagen, a100, tmp_path, option):
    assert fagen("bench", a100, option, tmp_path / "no" / "out").exit_code == 2


def test_two_reports_in_one_file_are_refused_before_a_gpu_is_looked_for(fagen, a100, tmp_path):
    result = fagen("bench", a100, "--json", tmp_path / "out", "--markdown", tmp_path / "." / "out")
    assert result.exit_code == 1
    assert "is given for several reports; allowed: a file for each" in result.stderr


def test_without_matplotlib_a_page_is_refused_before_a_gpu_is_looked_for(fagen, a100, tmp_path, monkeypatch):
    monkeypatch.setattr("fagen.bench.html.plots.find_spec", lambda name: None)
    result = fagen("bench", a100, "--html", tmp_path / "out.html")
    assert result.exit_code == 1
    assert "needs matplotlib" in result.stderr and "GPU" not in result.stderr


def test_a_length_given_twice_is_timed_once(fagen, a100, runs):
    runs(GOOD, GOOD)
    assert fagen("bench", a100, "--seqlens", "128, 128").exit_code == 0


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--compare", '{"cases": []}', "fagen bench 1"),
        ("--compare", None, "cannot be read"),
        ("--shapes", "mine: 3", "mine: is 3"),
        ("--shapes", None, "does not exist"),
    ],
)
def test_files_are_read_before_a_gpu_is_looked_for(fagen, a100, tmp_path, option, text, words):
    file = tmp_path / "file"
    if text is not None:
        file.write_text(text)
    result = fagen("bench", a100, option, file)
    assert result.exit_code == 1
    assert words in result.stderr and "GPU" not in result.stderr


def test_prints_a_row_per_case_and_the_summary_last(fagen, a100, runs):
    runs(GOOD, GOOD)
    result = fagen("bench", a100, "--seqlens", "128")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert sum(line.startswith("a100_fa2") for line in lines) == 2
    assert lines[-1].startswith("fwd     2.000 x torch flash (geometric mean of 2)")


def test_several_modes_in_one_run(fagen, a100, runs, tmp_path):
    runs(*[GOOD] * 6)
    file = tmp_path / "out.json"
    assert (
        fagen("bench", a100, "--seqlens", "128", "--mode", "fwd,bwd,fwd+bwd", "--json", file).exit_code == 0
    )
    cases = json.loads(file.read_text())["cases"]
    assert [case["mode"] for case in cases] == ["fwd", "bwd", "fwd+bwd"] * 2
    assert [case["flops"] / (4 * 128 * 16 * 128 * 128 * 128) for case in cases[:3]] == [1, 2.5, 3.5]


def test_shapes_of_a_file_that_the_spec_does_not_fit_are_named(fagen, runs, tmp_path):
    runs(GOOD)
    file = tmp_path / "shapes.yaml"
    file.write_text("small: {batch: 1, seqlen_q: 1, seqlen_k: 64, heads_q: 2, head_dim: 128}\n"
                    "wide: {batch: 1, seqlen_q: 64, heads_q: 2, head_dim: 256}\n")  # fmt: skip
    result = fagen("bench", SPECS / "h200_fa3.yaml", "--shapes", file)
    assert result.exit_code == 0
    assert "small" in result.stdout and "wide" not in result.stdout
    assert "h200_fa3, wide, fwd: left out:" in result.stderr


def test_a_wrong_op_is_reported_and_exits_1(fagen, a100, runs):
    runs(GOOD, Outcome(1.0, problem="wrong: error 1.0"))
    result = fagen("bench", a100, "--seqlens", "128")
    assert result.exit_code == 1
    assert "fagen wrong: error 1.0: a100_fa2, d128_causal_128, fwd" in result.stderr
    assert "geometric mean of 1" in result.stdout


def test_a_wrong_op_in_a_mode_of_its_own_exits_1_and_a_wrong_peer_does_not(fagen, a100, runs, monkeypatch):
    for name, code in ((DETERMINISTIC, 1), ("FA3", 0)):
        runs()
        outcomes = {OURS: GOOD, name: Outcome(1.0, problem="wrong: error 1.0")}
        monkeypatch.setattr(run, "run", lambda case, outcomes=outcomes: Result(case, 2e-3, outcomes))
        assert fagen("bench", a100, "--seqlens", "128", "--mode", "bwd").exit_code == code


def test_ctrl_c_keeps_what_is_known(fagen, a100, runs, tmp_path):
    runs(GOOD, KeyboardInterrupt())
    files = [tmp_path / name for name in ("out.json", "out.md")]
    result = fagen("bench", a100, "--seqlens", "128", "--json", files[0], "--markdown", files[1])
    assert result.exit_code == 130
    assert "geometric mean of 1" in result.stdout
    assert len(json.loads(files[0].read_text())["cases"]) == 1
    assert "| a100_fa2 | fwd |" in files[1].read_text()


def test_writes_a_page(fagen, a100, runs, tmp_path):
    pytest.importorskip("matplotlib")
    runs(GOOD, GOOD)
    file = tmp_path / "out.html"
    assert fagen("bench", a100, "--seqlens", "128", "--html", file).exit_code == 0
    assert "a100_fa2" in file.read_text()


@pytest.mark.parametrize(
    ("seconds", "code", "word"), [(1.5e-3, 1, "slower"), (0.5e-3, 0, "faster"), (1e-3, 0, "")]
)
def test_compare_says_what_changed_and_exits_1_where_ours_is_slower(
    fagen, a100, runs, tmp_path, seconds, code, word
):
    old = tmp_path / "old.json"
    runs(GOOD, GOOD)
    fagen("bench", a100, "--seqlens", "128", "--json", old)
    runs(GOOD, took(seconds))
    result = fagen("bench", a100, "--seqlens", "128", "--compare", old)
    assert result.exit_code == code, result.output
    rows = [line for line in result.stdout.splitlines() if line.startswith("a100_fa2, ")]
    assert [("d128_causal_128" in row, word in row) for row in rows] == [(True, True)] * bool(word)


def test_compare_with_nothing_in_common_is_said_before_any_work(fagen, a100, runs, tmp_path):
    old = tmp_path / "old.json"
    runs(GOOD, GOOD)
    fagen("bench", a100, "--seqlens", "128", "--json", old)
    result = fagen("bench", a100, "--seqlens", "256", "--compare", old)
    assert result.exit_code == 1
    assert "no case of this run" in result.stderr and result.stdout == ""


@pytest.mark.gpu
def test_on_a_gpu(fagen, a100, tmp_path):
    files = [tmp_path / f"out.{kind}" for kind in ("json", "md")]
    words = ("--seqlens", "512", "--mode", "fwd,bwd,fwd+bwd", "--json", files[0], "--markdown", files[1])
    result = fagen("bench", a100, *words)
    assert result.exit_code == 0, result.stderr
    assert "torch" in result.stdout and "standard" in result.stdout
    found = json.loads(files[0].read_text())
    assert found["machine"]["device"] == torch.cuda.get_device_name()
    assert {case["mode"] for case in found["cases"]} == {"fwd", "bwd", "fwd+bwd"}
    assert fagen("bench", a100, *words, "--compare", files[0]).exit_code in (0, 1)  # speed may wander
