from __future__ import annotations

import pytest
from cuda.pathfinder import DynamicLibNotFoundError

from fagen.errors import LaunchError
from fagen.runtime import context


def test_a_device_is_known_without_a_context(driver):
    assert context.visible_devices() == 3
    assert context.capability(2) == (8, 0)
    assert context.device_name(2) == "NVIDIA A100"
    assert context.device_uuid(2) == "GPU-02020202-0202-0202-0202-020202020202"
    assert not driver.calls["cuDevicePrimaryCtxRetain"]


def test_no_devices_are_counted_where_there_is_none_or_no_driver(driver, monkeypatch):
    driver.fail["cuInit"] = "CUDA_ERROR_NO_DEVICE"
    assert context.visible_devices() == 0

    def missing(flags):
        raise DynamicLibNotFoundError("libcuda.so.1")

    monkeypatch.setattr(driver, "cuInit", missing)
    assert context.visible_devices() == 0


def test_devices_that_the_driver_does_not_open_are_an_error(driver):
    driver.fail["cuInit"] = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
    with pytest.raises(LaunchError, match="counting CUDA devices: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"):
        context.visible_devices()
