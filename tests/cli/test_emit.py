from __future__ import annotations

import json
import shlex
from pathlib import Path
from shutil import copyfile

import pytest


@pytest.fixture
def emitted(fagen, a100, tmp_path):
    out = tmp_path / "generated"
    assert fagen("emit", a100, "--out", out).exit_code == 0
    return out


def test_writes_kernel_plan_page_and_op(emitted):
    kernels = {"forward.cu", "backward_prepare.cu", "backward.cu", "backward_convert.cu"}
    assert {path.name for path in (emitted / "a100_fa2").iterdir()} == kernels | {"plan.md", "__init__.py"}


def test_check_passes_on_what_was_just_written(fagen, a100, emitted):
    assert fagen("emit", a100, "--check", "--out", emitted).exit_code == 0


def test_check_fails_on_an_edit_names_the_file_and_writes_nothing(fagen, a100, emitted):
    kernel = emitted / "a100_fa2" / "backward.cu"
    kernel.write_text("// edited\n")
    result = fagen("emit", a100, "--check", "--out", emitted)
    assert result.exit_code == 1
    assert str(kernel) in result.stderr
    assert kernel.read_text() == "// edited\n"


def test_check_says_the_command_that_mends_it(fagen, a100, tmp_path):
    spec, out = tmp_path / "a b" / a100.name, tmp_path / "gé nerated"
    spec.parent.mkdir()
    copyfile(a100, spec)
    lines = fagen("emit", spec, "--check", "--out", out).stderr.splitlines()
    program, *words = shlex.split(lines[-1].removeprefix("mend with: "))
    assert program == "fagen" and fagen(*words).exit_code == 0
    assert fagen("emit", spec, "--check", "--out", out).exit_code == 0


def test_check_fails_where_nothing_was_written(fagen, a100, tmp_path):
    assert fagen("emit", a100, "--check", "--out", tmp_path / "nowhere").exit_code == 1


def test_compile_commands_name_the_kernel_and_the_cuda_headers(fagen, a100, tmp_path):
    assert fagen("emit", a100, "--out", tmp_path, "--compile-commands").exit_code == 0
    for command in json.loads((tmp_path / "compile_commands.json").read_text()):
        assert (tmp_path / command["file"]).is_file()
        include = [Path(word[2:]) for word in command["arguments"] if word.startswith("-I")]
        assert any((directory / "cuda_bf16.h").is_file() for directory in include)
