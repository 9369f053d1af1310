"""How much of the memory bus `fagen.quantize_fp8` uses."""

from __future__ import annotations

import pytest

from fagen.bench.clock import CudaClock
from fagen.bench.quantize import BATCH_LENGTH_HEADS, rates

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

LEAST = 0.8  # of a copy's bandwidth


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_scales_per_block_take_one_pass_at_the_speed_of_a_copy(head_dim):
    kinds = (
        {"scale": "block"},
        {"scale": "block", "hadamard": True},
        {"scale": "block", "v_transposed": True},
    )
    for rate in rates(*BATCH_LENGTH_HEADS, head_dim, kinds, CudaClock()):
        assert rate.share >= LEAST, rate
