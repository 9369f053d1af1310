"""Bounds, alignment, bytes that nobody has written, and cp.async."""

import numpy as np
import pytest
from cases import THREADS, accepts, objects, run_case

COPIED = np.arange(4 * THREADS, dtype=np.uint32)
SWAPPED = COPIED.reshape(-1, 2, 4)[:, ::-1].ravel()  # each thread has its neighbour's four words


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("unwritten", "uninitialised", "tile"),
        ("beyond_shared", "out of bounds", "the CTA has 4096"),
        ("below_shared", "out of bounds", "shared byte -4"),
        ("misaligned_shared", "misaligned", "4 bytes"),
        ("beyond_global", "out of bounds", "byte 4096 of out, which has 4096 bytes"),
        ("far_from_global", "out of bounds", "global memory"),
        ("write_to_input", "out of bounds", "in is written to, but it is read-only"),
        ("misaligned_global", "misaligned", "out at byte 4"),
        ("copy_beyond_input", "out of bounds", "byte 4096 of in"),
        ("copy_misaligned_source", "misaligned", "16 bytes"),
    ],
)
def test_an_access_that_is_wrong_by_itself(name, kind, words):
    objects(name, kind, words)


@pytest.mark.parametrize("name", ["copy_wait", "copy_wait_all", "copy_older_group"])
def test_a_copy_is_there_once_waited_for(name):
    accepts(name, COPIED)


@pytest.mark.parametrize("name", ["copy_of_another_thread_synced", "copy_arrives"])
def test_a_copy_is_there_for_others_once_a_barrier_has_told_them(name):
    accepts(name, SWAPPED)


@pytest.mark.parametrize(
    "name",
    [
        "copy_no_wait",
        "copy_no_commit",
        "copy_weak_wait",
        "copy_of_another_thread",
        "copy_over_a_read",
        "copies_on_top_of_each_other",
        "copy_arrives_too_early",
        "copy_after_its_arrival",
    ],
)
def test_a_copy_that_nobody_waited_for_is_a_race(name):
    objects(name, "race", "cp.async of thread")


def test_a_copy_of_nothing_is_zeros():
    out = run_case("copy_zeros")[: 4 * THREADS].reshape(THREADS, 4)
    np.testing.assert_array_equal(out[0::2], 0)
    np.testing.assert_array_equal(out[1::2], COPIED.reshape(THREADS, 4)[1::2])
