from __future__ import annotations

import pytest
import torch

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@needs_no_gpu
def test_without_a_gpu_it_says_what_to_do(fagen, a100):
    result = fagen("run", a100)
    assert result.exit_code == 1
    assert "fagen doctor" in result.stderr
    assert "fagen plan" in result.stderr


def test_a_shape_that_is_none_is_a_usage_error(fagen, a100):
    result = fagen("run", a100, "--shape", "2,128")
    assert result.exit_code == 2
    assert "B,Sq,Sk,Hq,Hkv" in result.stderr


@pytest.mark.gpu
def test_reports_error_and_time_beside_what_is_allowed_and_predicted(fagen, a100):
    result = fagen("run", a100, "--shape", "1,256,256,2,2", "--set", "problem.head_dim=64")
    assert result.exit_code == 0
    assert result.stdout.count("allowed") == 2
    assert result.stdout.count("predicted") == 2


@pytest.mark.gpu
def test_a_device_that_is_not_there_is_named(fagen, a100):
    result = fagen("run", a100, "--device", "99")
    assert result.exit_code == 1
    assert "device: is 99" in result.stderr
