from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from fagen.cli import doctor
from fagen.errors import CompileError, LaunchError


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none() -> int:
        raise LaunchError("no CUDA driver on this machine")

    monkeypatch.setattr(doctor.context, "device_count", none)
    monkeypatch.setattr(doctor, "GPU_DEVICE_FILE", tmp_path / "none")


@pytest.fixture
def driver_12_9(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.context, "device_count", lambda: 1)
    monkeypatch.setattr(doctor.context, "driver_version", lambda: (12, 9))
    monkeypatch.setattr(doctor.context, "capability", lambda _: (9, 0))
    monkeypatch.setattr(doctor.context, "device_name", lambda _: "NVIDIA H200")


def findings(state: str) -> dict[str, doctor.Finding]:
    return {finding.subject: finding for finding in doctor.examine() if finding.state == state}


def test_a_machine_without_a_gpu_is_fine(fagen, no_gpu):
    result = fagen("doctor")
    assert result.exit_code == 0
    assert "GPU" in findings("note")
    assert {"NVRTC", "CUDA headers", "kernel cache"} <= findings("ok").keys()


def test_a_gpu_that_the_driver_does_not_open_is_trouble(fagen, no_gpu, monkeypatch):
    monkeypatch.setattr(doctor, "GPU_DEVICE_FILE", Path("/"))
    assert "GPU" in findings("trouble")
    assert fagen("doctor").exit_code == 1


@pytest.mark.parametrize(
    ("error", "state"), [("CUDA_ERROR_NO_DEVICE", "note"), ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "trouble")]
)
def test_gpus_that_the_environment_hides_are_not_the_drivers_fault(no_gpu, monkeypatch, error, state):
    def none() -> int:
        raise LaunchError(f"using CUDA device 0: {error}")

    monkeypatch.setattr(doctor.context, "device_count", none)
    monkeypatch.setattr(doctor, "GPU_DEVICE_FILE", Path("/"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = findings(state)["GPU"]
    assert ("driver" in found.mend) == (state == "trouble")
    assert ("CUDA_VISIBLE_DEVICES=''" in found.message) == (state == "note")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "driver" in findings("trouble")["GPU"].mend


@pytest.mark.usefixtures("no_gpu")
def test_headers_found_in_part_are_trouble_that_names_the_missing_one(fagen, tmp_path, monkeypatch):
    include = tmp_path / "a b" / "include"
    include.mkdir(parents=True)
    (include / "cuda_bf16.h").touch()
    monkeypatch.setenv("FAGEN_CUDA_INCLUDE", str(include))
    result = fagen("doctor")
    assert result.exit_code == 1
    assert str(include) in result.stdout
    assert "cuda_fp16.h" in result.stdout


@pytest.mark.usefixtures("no_gpu")
def test_a_cache_that_cannot_be_written_is_a_warning_that_names_the_setting(fagen, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FAGEN_CACHE_DIR", str(tmp_path / "file"))
    found = findings("warning")["kernel cache"]
    assert str(tmp_path / "file") in found.message and "set FAGEN_CACHE_DIR" in found.mend
    for unset in ("FAGEN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(unset, raising=False)
    assert "HOME is not set" in findings("warning")["kernel cache"].message
    assert fagen("doctor").exit_code == 0  # kernels are built all the same


@pytest.mark.usefixtures("no_gpu")
def test_no_nvrtc_is_trouble(monkeypatch):
    def missing() -> None:
        raise CompileError("NVRTC not found")

    monkeypatch.setattr(doctor, "nvrtc_version", missing)
    assert "nvidia-cuda-nvrtc" in findings("trouble")["NVRTC"].mend


@pytest.mark.parametrize(
    ("nvrtc", "state"), [((12, 8), "ok"), ((12, 9), "ok"), ((12, 10), "warning"), ((13, 0), "trouble")]
)
@pytest.mark.usefixtures("driver_12_9")
def test_an_nvrtc_newer_than_the_driver(monkeypatch, nvrtc, state):
    monkeypatch.setattr(doctor, "nvrtc_version", lambda: nvrtc)
    assert "NVRTC" in findings(state)


@pytest.mark.usefixtures("driver_12_9")
def test_a_gpu_without_a_row_is_trouble(monkeypatch):
    monkeypatch.setattr(doctor.context, "capability", lambda _: (7, 0))
    assert "7.0" in findings("trouble")["GPU"].message


@pytest.mark.usefixtures("driver_12_9")
def test_no_pytorch_is_trouble(monkeypatch):
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert "torch" in findings("trouble")["versions"].mend


@pytest.mark.usefixtures("no_gpu")
def test_the_host_compiler_is_named_and_missing_it_is_no_trouble(fagen, tmp_path, monkeypatch):
    assert "host compiler" in findings("ok")
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    assert "install g++" in findings("warning")["host compiler"].message
    assert fagen("doctor").exit_code == 0
