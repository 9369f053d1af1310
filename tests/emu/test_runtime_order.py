"""Order between threads: accesses to shared memory that nothing orders are races, under every seed."""

import numpy as np
import pytest
from cases import SEEDS, THREADS, accepts, line_of, objects, run_case

from fagen.errors import EmulatorError

SEVENS = np.full(THREADS, 7, np.uint32)


@pytest.mark.parametrize("name", ["two_writes", "read_then_write", "write_shuffle_read"])
def test_unordered_accesses_are_a_race(name):
    objects(name, "race", "tile", "is not ordered after")


def test_a_race_names_both_lines():
    name = "read_then_write"
    objects(name, "race", line_of(name, "st_shared"), line_of(name, "ld_shared_16"))


def test_a_race_names_both_threads():
    objects(
        "read_then_write", "race", "thread (0, 0, 0) of CTA (0, 0, 0)", "thread (32, 0, 0) of CTA (0, 0, 0)"
    )


def test_a_read_before_or_after_an_unordered_write_fails():
    for seed in SEEDS:  # it depends on who comes first whether there is anything to read
        with pytest.raises(EmulatorError, match=r"race|uninitialised"):
            run_case("write_then_read", seed=seed)


@pytest.mark.parametrize("name", ["write_sync_read", "write_syncwarp_read"])
def test_barriers_order_memory(name):
    accepts(name, SEVENS)


def test_a_partial_syncwarp_orders_its_lanes():
    accepts("partial_syncwarp", SEVENS[:16])


def test_halves_of_a_word_are_no_race():
    accepts("neighbours_of_a_word", np.full(THREADS, 0x70007, np.uint32))


def test_a_named_barrier_orders_those_who_arrive_before_those_who_wait():
    accepts("barrier_arrive_then_sync", np.arange(32, dtype=np.uint32))


def test_a_named_barrier_orders_nothing_for_those_who_only_arrive():
    objects("barrier_arrive_orders_nothing_for_the_arriver", "race")


def test_a_named_barrier_orders_nothing_of_its_next_generation():
    for seed in range(20):  # in some of them that one is complete before thread 0 goes on
        with pytest.raises(EmulatorError, match="race"):
            run_case("barrier_orders_nothing_of_its_next_generation", seed=seed, threads=128)


def test_an_mbarrier_orders_arrivals_before_waiters():
    accepts("mbarrier_orders", np.arange(32, dtype=np.uint32) ^ 1)
