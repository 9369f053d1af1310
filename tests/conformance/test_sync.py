"""Barriers of every kind, clusters, elect.sync, setmaxnreg, cp.async, atomics."""

from __future__ import annotations

import numpy as np
from machine import Machine, Map

from fagen.plan.tensor_map import TensorMap

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


def test_every_number_of_a_counter_is_handed_out_once_and_the_last_cta_sees_what_all_wrote(machine: Machine):
    ctas, numbers = 9, 50
    counters, takers = np.zeros(2, np.uint32), np.zeros(numbers, np.uint32)
    own, total = np.zeros(ctas, np.int32), np.zeros(1, np.uint32)
    machine.run("counter", [counters, takers, own, total, numbers], grid=ctas, threads=32)
    assert np.all((takers >= 1) & (takers <= ctas))
    assert np.array_equal(own, [np.flatnonzero(takers == cta + 1).sum() for cta in range(ctas)])
    assert total[0] == numbers * (numbers - 1) // 2 and not counters.any()


def test_stages_released_in_both_ctas_of_a_cluster_are_filled_again_and_exited_warps_are_not_waited_for(
    machine: Machine,
):
    clusters, tiles, rows = 3, 17, 16
    numbers = np.random.default_rng(10).integers(0, 2**20, (clusters, tiles, rows, 32), np.uint32)
    boxes = TensorMap("fp32", (32, clusters * tiles * rows), (128,), (32, rows // 2))
    sums = np.zeros((clusters, 2, 2, 32), np.uint32)  # cluster, CTA, warp
    machine.run(
        "cluster_ring",
        [Map(numbers, boxes), sums, tiles],
        grid=2 * clusters,
        threads=96,
        smem_bytes=1024 + 2 * 2048,
        cluster=2,
    )
    assert np.all(sums == numbers.sum((1, 2), dtype=np.uint32)[:, None, None])
