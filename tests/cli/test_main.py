from __future__ import annotations

import os
import subprocess
import sys

import pytest

import fagen as package
from fagen.cli import plan
from fagen.paths import SPECS

SPEC = str(SPECS / "a100_fa2.yaml")
COMMANDS = ("plan", "emit", "build", "run", "bench", "support", "doctor", "schema")


def test_version(fagen):
    result = fagen("--version")
    assert (result.exit_code, result.stdout) == (0, f"fagen {package.__version__}\n")


def test_help_names_every_command(fagen):
    text = fagen("--help").stdout
    assert all(command in text for command in COMMANDS)


@pytest.mark.parametrize("command", ["plan", "emit", "build", "run", "bench"])
def test_a_broken_spec_is_a_message_with_its_line_and_exit_1(fagen, broken, command):
    result = fagen(command, broken)
    assert result.exit_code == 1
    assert f"{broken}:5: problem.head_dom" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["plan", "emit", "build", "run", "bench"])
def test_a_missing_spec_is_named(fagen, tmp_path, command):
    result = fagen(command, tmp_path / "nowhere.yaml")
    assert result.exit_code == 1
    assert "nowhere.yaml" in result.stderr


@pytest.mark.parametrize("command", ["plan", "build", "run"])
def test_an_unknown_key_to_set_is_refused(fagen, a100, command):
    result = fagen(command, a100, "--set", "problem.head_dom=64")
    assert result.exit_code == 1
    assert "head_dim" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("emit", SPEC, "--out"),
        ("emit", SPEC, "--check", "--out"),
        ("build", SPEC, "--out"),
        ("support", "--into"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("place", ["", "below"])
def test_a_place_that_cannot_be_read_or_written_is_named(fagen, tmp_path, words, place):
    file = tmp_path / "a file"
    file.write_text("no place for a table")
    result = fagen(*words, file / place)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "a file" in result.stderr or "support:begin" in result.stderr


@pytest.mark.parametrize("words", [("plan", SPEC), ("support",), ("schema",)], ids=" ".join)
def test_output_that_takes_ascii_only_or_is_closed_early_is_no_crash(words):
    command = [sys.executable, "-m", "fagen", *words]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.stderr == ""


def test_an_unknown_option_is_a_usage_error(fagen, a100):
    assert fagen("plan", a100, "--head-dim", "64").exit_code == 2


def test_ctrl_c_exits_130(fagen, a100, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "load_spec", interrupted)
    assert fagen("plan", a100).exit_code == 130


def test_commands_start_without_torch():
    code = "import sys, fagen.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_python_dash_m_is_the_same_command():
    done = subprocess.run(
        [sys.executable, "-m", "fagen", "--version"], check=True, capture_output=True, text=True
    )
    assert done.stdout == f"fagen {package.__version__}\n"
