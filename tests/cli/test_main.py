from __future__ import annotations

import subprocess
import sys

import pytest

import fagen as package
from fagen.cli import plan

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
