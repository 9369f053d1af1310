"""Interleavings: one per seed, whatever the number of OS threads."""

import numpy as np
import pytest
from cases import SEEDS, THREADS, run_case

from fagen.errors import EmulatorError


def tickets(**options) -> np.ndarray:
    """Per CTA, the order in which its threads came."""
    return run_case("tickets", grid=8, **options)[: 8 * (THREADS + 1)].reshape(8, -1)[:, 1:]


def test_a_seed_is_one_interleaving():
    np.testing.assert_array_equal(tickets(seed=3), tickets(seed=3))


def test_seeds_and_ctas_differ():
    orders = np.concatenate([tickets(seed=seed) for seed in SEEDS])
    assert len({tuple(order) for order in orders}) == len(orders)
    np.testing.assert_array_equal(np.sort(orders), np.broadcast_to(np.arange(THREADS), orders.shape))


def test_os_threads_change_nothing():
    np.testing.assert_array_equal(tickets(os_threads=1), tickets(os_threads=5))


@pytest.mark.parametrize("os_threads", [1, 4])
def test_the_first_cta_that_fails_is_named(os_threads):
    texts = []
    for _ in range(5):
        with pytest.raises(EmulatorError, match=r"of CTA \(3, 0, 0\)") as caught:
            run_case("late_ctas_fail", grid=20, os_threads=os_threads)
        texts.append(str(caught.value))
    assert len(set(texts)) == 1


def test_an_error_leaves_nothing_behind():
    with pytest.raises(EmulatorError):
        run_case("unwritten")
    run_case("nothing")


@pytest.mark.parametrize("threads", [0, 33, 1056])
def test_a_launch_that_no_gpu_takes(threads):
    with pytest.raises(EmulatorError, match=f"{threads} threads per CTA"):
        run_case("nothing", threads=threads)
