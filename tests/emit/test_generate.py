"""generated/<name>/: written from the spec, checked against it, importable."""

import json
import runpy

import pytest

from fagen.emit import generate
from fagen.paths import SPECS
from fagen.spec.load import load_spec

KERNELS = ("forward.cu", "backward_prepare.cu", "backward.cu", "backward_convert.cu")
FILES = (*KERNELS, "plan.md", "__init__.py")


@pytest.fixture
def spec():
    return load_spec(SPECS / "a100_fa2.yaml")


def test_write_then_check_is_clean_and_second_write_touches_nothing(spec, tmp_path):
    paths = generate.write(spec, tmp_path)
    assert sorted(path.name for path in paths) == sorted(FILES)
    assert generate.check(spec, tmp_path) == []
    before = [path.stat().st_mtime_ns for path in paths]
    generate.write(spec, tmp_path)
    assert [path.stat().st_mtime_ns for path in paths] == before


@pytest.mark.parametrize("name", FILES)
def test_check_names_a_file_that_is_missing_or_edited(spec, tmp_path, name):
    generate.write(spec, tmp_path)
    path = tmp_path / spec.name / name
    path.write_text(path.read_text() + "// edited\n")
    (difference,) = generate.check(spec, tmp_path)
    assert str(path) in difference and "-// edited" in difference
    path.unlink()
    assert generate.check(spec, tmp_path) == [f"{path}: missing"]


def test_a_spec_of_the_forward_alone_prints_no_backward(tmp_path):
    spec = load_spec(SPECS / "a100_fa2.yaml", {"problem.passes": ["forward"]})
    files = generate.files(spec)
    assert set(files) == {"forward.cu", "plan.md", "__init__.py"}
    assert "backward" not in files["plan.md"].replace("`backward", "")


def test_the_printed_spec_is_the_spec(spec, tmp_path, monkeypatch):
    generate.write(spec, tmp_path)
    loaded = []
    monkeypatch.setattr("fagen.load", loaded.append, raising=False)
    runpy.run_path(str(tmp_path / spec.name / "__init__.py"))
    assert [load_spec(found) for found in loaded] == [spec]


def test_compile_commands_name_every_kernel(spec, tmp_path):
    generate.write(spec, tmp_path)
    commands = json.loads(generate.compile_commands([spec], tmp_path).read_text())
    assert [command["file"] for command in commands] == [f"a100_fa2/{name}" for name in KERNELS]
    assert all("--cuda-gpu-arch=sm_80" in command["arguments"] for command in commands)


def test_the_printed_spec_does_not_say_what_could_be_tuned(tmp_path):
    spec = load_spec(SPECS / "a100_fa2.yaml").model_copy(update={"tune": {"tile.q": (64, 128)}})
    assert "tune" not in generate.files(spec)["__init__.py"]
