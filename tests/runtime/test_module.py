from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest
from cuda.pathfinder import DynamicLibNotFoundError
from fake_driver import SMS

from fagen.errors import LaunchError
from fagen.runtime import context
from fagen.runtime.module import load

SMEM = 200 * 1024


def test_a_kernel_is_loaded_in_its_devices_context_with_its_shared_memory(driver, artifact):
    kernel = load(artifact, 128, SMEM, 1)
    assert kernel.context == 101 and kernel.function == 2000 + 101
    assert driver.smem == {kernel.function: SMEM}
    assert driver.calls["cuFuncLoad"] == 1


def test_loading_changes_neither_the_current_device_nor_a_capture(driver, artifact):
    driver.stack.append(100)
    before = driver.capture_mode
    load(artifact, 128, SMEM, 1)
    assert driver.stack == [0, 100]
    assert driver.capture_mode == before
    assert driver.capture_mode_at_load == driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED


def test_it_is_loaded_once_per_device_by_however_many_threads(driver, artifact):
    with ThreadPoolExecutor(16) as pool:
        kernels = list(pool.map(lambda n: load(artifact, 128, SMEM, n % 2), range(64)))
    assert driver.calls["cuModuleLoadData"] == 2
    assert len({kernel.function for kernel in kernels}) == 2
    load(dataclasses.replace(artifact, key="1" * 64), 128, SMEM, 0)
    assert driver.calls["cuModuleLoadData"] == 3


def test_two_kernels_of_one_program_are_two(driver, artifact):
    other = dataclasses.replace(artifact, symbol="tiny_bwd")
    assert [load(each, 128, SMEM, 0).symbol for each in (artifact, other)] == ["tiny_fwd", "tiny_bwd"]


def test_jit7_another_arch_is_refused_by_name_before_loading(driver, artifact):
    with pytest.raises(LaunchError, match="tiny_fwd is built for sm_90a; device 2 is NVIDIA A100, sm_80"):
        load(artifact, 128, SMEM, 2)
    older = dataclasses.replace(artifact, arch="sm_80")
    with pytest.raises(LaunchError, match="is built for sm_80; device 0 is NVIDIA H200, sm_90a"):
        load(older, 128, SMEM, 0)
    assert driver.calls["cuModuleLoadData"] == 0


def test_a_device_outside_the_table_is_named_by_its_capability(driver, artifact):
    driver.devices = (("NVIDIA V100", (7, 0)),)
    with pytest.raises(LaunchError, match="device 0 is NVIDIA V100, sm_70"):
        load(artifact, 128, SMEM, 0)


@pytest.mark.parametrize(
    "error",
    ["CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_NO_BINARY_FOR_GPU"],
)
def test_jit6_code_that_the_driver_does_not_take_names_versions_and_remedy(driver, artifact, error):
    driver.fail["cuModuleLoadData"] = error
    with pytest.raises(LaunchError) as raised:
        load(artifact, 128, SMEM, 0)
    message = str(raised.value)
    assert error in message
    assert "driver (CUDA 13.0)" in message and "NVRTC 13.5" in message
    assert "update the driver, or install nvidia-cuda-nvrtc==13.0.*" in message
    # The failure is not remembered.
    driver.fail.clear()
    assert load(artifact, 128, SMEM, 0).symbol == "tiny_fwd"


def test_a_device_has_its_sms(driver):
    assert context.sms(1) == SMS
    with pytest.raises(LaunchError, match=r"asking CUDA device 0 for .*MULTIPROCESSOR_COUNT"):
        driver.fail["cuDeviceGetAttribute"] = "CUDA_ERROR_INVALID_DEVICE"
        context.sms(0)


def test_too_much_shared_memory_names_the_bytes(driver, artifact):
    driver.fail["cuFuncSetAttribute"] = "CUDA_ERROR_INVALID_VALUE"
    with pytest.raises(LaunchError, match=f"with {SMEM} bytes of dynamic.*CUDA_ERROR_INVALID_VALUE"):
        load(artifact, 128, SMEM, 0)
    assert driver.stack == [0]


def test_no_driver_and_no_device_are_launch_errors(driver, artifact, monkeypatch):
    with pytest.raises(LaunchError, match="using CUDA device 9: CUDA_ERROR_INVALID_DEVICE"):
        load(artifact, 128, SMEM, 9)

    def missing(flags):
        raise DynamicLibNotFoundError("libcuda.so.1")

    monkeypatch.setattr(driver, "cuInit", missing)
    with pytest.raises(LaunchError, match="no CUDA driver"):
        load(artifact, 128, SMEM, 0)
