"""What the driver is asked when a tensor map is encoded."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import cuda.bindings.driver as real
import pytest

from fagen.errors import LaunchError
from fagen.plan.tensor_map import BYTES, TensorMap
from fagen.runtime import tensormap

TENSOR = TensorMap("e4m3", (256, 77), (512,), (128, 64), 128)


@pytest.fixture
def asked(monkeypatch):
    """Arguments of cuTensorMapEncodeTiled, one tuple per call."""
    calls = []

    def encode(dtype, rank, address, dims, strides, box, steps, *modes):
        calls.append(
            (
                dtype,
                rank,
                address,
                *([int(n) for n in numbers] for numbers in (dims, strides, box, steps)),
                modes,
            )
        )
        return real.CUresult.CUDA_SUCCESS, SimpleNamespace(opaque=[real.cuuint64_t(n) for n in range(16)])

    monkeypatch.setattr(real, "cuTensorMapEncodeTiled", encode)
    tensormap.encode.cache_clear()
    yield calls
    tensormap.encode.cache_clear()


def test_the_map_is_the_drivers(asked):
    assert tensormap.encode(TENSOR, 4096) == struct.pack("@16Q", *range(16)) and BYTES == 128
    dtype, rank, address, dims, strides, box, steps, modes = asked[0]
    assert dtype.name.endswith("UINT8") and (rank, address) == (2, 4096)
    assert (dims, strides[:1], box, steps) == ([256, 77], [512], [128, 64], [1, 1])
    assert [mode.name.split("CU_TENSOR_MAP_")[1] for mode in modes] == [
        "INTERLEAVE_NONE",
        "SWIZZLE_128B",
        "L2_PROMOTION_L2_128B",
        "FLOAT_OOB_FILL_NONE",
    ]


def test_a_map_is_encoded_once_per_address(asked):
    for address in (4096, 4096, 8192):
        tensormap.encode(TENSOR, address)
    assert len(asked) == 2


def test_a_map_that_tma_cannot_take_does_not_reach_the_driver(asked):
    with pytest.raises(LaunchError, match="address is 0x8"):
        tensormap.encode(TENSOR, 8)
    assert not asked
