"""Barriers of every kind, clusters, elect.sync, setmaxnreg, cp.async."""

from __future__ import annotations

import numpy as np
from machine import Machine

OUT = np.dtype(
    [
        ("elected", np.uint32, 12),
        ("through_named", np.uint32, 128),
        ("loaded", np.uint32, 4),
        ("rank", np.uint32),
        ("remote_rank", np.uint32),
        ("", np.uint32, 2),
    ]
)


def test_every_barrier_lets_through_what_was_written_before_it(machine: Machine):
    given = np.array([3, 1, 4, 1], np.uint32)
    out = np.zeros(4, OUT)
    machine.run("barriers", [given, out], grid=4, threads=384, smem_bytes=8192, cluster=2)
    assert out["elected"].all()
    assert (out["loaded"] == given).all()
    assert (out["rank"] == [0, 1, 0, 1]).all() and (out["remote_rank"] == [1, 0, 1, 0]).all()
    assert (out["through_named"] == 3000 + 3 * np.arange(127, -1, -1)).all()


def test_cp_async_lands_by_groups_and_fills_with_zeros(machine: Machine):
    given = np.random.default_rng(7).integers(1, 256, (4, 128, 16), np.uint8)
    found = np.zeros_like(given)
    machine.run("cp_async", [given, found], grid=1, smem_bytes=16 + given.nbytes)
    expected = given.copy()
    expected[1, 1::2] = 0
    assert np.array_equal(found, expected)
