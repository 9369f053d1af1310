"""1-D bulk copies and reduce-add."""

from __future__ import annotations

import numpy as np
import pytest
from machine import Machine


@pytest.mark.parametrize("count", [16, 240, 4096])
def test_bulk_copies_move_every_byte_and_add_every_float(machine: Machine, count):
    ctas = 5
    numbers = np.random.default_rng(count).integers(-100, 101, (ctas, count // 4)).astype(np.float32)
    out, sums, seen = np.zeros_like(numbers), np.ones(count // 4, np.float32), np.zeros(ctas, np.float32)
    machine.run("bulk", [numbers, out, sums, seen, count], grid=ctas, threads=32, smem_bytes=16 + count)
    assert np.array_equal(out, numbers) and np.array_equal(seen, numbers[:, 0])
    assert np.array_equal(sums, 1 + numbers.sum(0))
