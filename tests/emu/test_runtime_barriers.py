"""mbarriers, named barriers, collectives: misuse, divergence and deadlock."""

import numpy as np
import pytest
from cases import SEEDS, THREADS, accepts, line_of, objects, run_case

from fagen.emu import settings
from fagen.errors import EmulatorError


@pytest.mark.parametrize("name", ["mbarrier_phases", "mbarrier_fresh", "mbarrier_polled"])
def test_waits_that_end(name):
    accepts(name)


def test_a_barriers_bytes_are_data_again_after_inval():
    accepts("mbarrier_given_up", np.full(THREADS, 7, np.uint32))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mbarrier_never_made", "used before it is initialised"),
        ("mbarrier_used_after_inval", "used before it is initialised"),
        ("mbarrier_made_twice", "initialised twice"),
        ("mbarrier_of_nobody", "0 arrivals"),
        ("mbarrier_many_at_once", "gets 3 arrivals, but phase 0 lacks 2 of 2"),
        ("mbarrier_too_many_arrivals_open", "gets 1 arrivals, but phase 0 lacks 0 of 1"),
        ("mbarrier_as_data", "accessed as data"),
        ("mbarrier_overwritten", "accessed as data"),
    ],
)
def test_misuse_of_an_mbarrier(name, words):
    objects(name, "mbarrier", words)


def test_a_barrier_starts_at_a_multiple_of_8():
    objects("mbarrier_misaligned", "misaligned", "8 bytes")


def test_a_barriers_bytes_are_data_only_for_those_who_know_of_inval():
    for seed in SEEDS:  # it depends on who comes first which of the two is meant
        with pytest.raises(EmulatorError, match=r"race|accessed as data"):
            run_case("mbarrier_given_up_unsynced", seed=seed)


def test_an_initialisation_must_be_made_known():
    texts = []
    for seed in range(20):
        with pytest.raises(EmulatorError, match="mbarrier in the emulator") as caught:
            run_case("mbarrier_not_synced", seed=seed)
        texts.append(str(caught.value))
    assert any("not ordered after its initialisation" in text for text in texts)
    assert any("before it is initialised" in text for text in texts)


def test_a_barrier_two_phases_ahead_of_a_waiter():
    found = 0
    for seed in range(20):
        try:
            run_case("mbarrier_two_phases_ahead", seed=seed)
        except EmulatorError as error:
            assert "two phases ahead" in str(error) or "deadlock" in str(error)
            found += "two phases ahead" in str(error)
    assert found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("different_collectives", "while other lanes of the warp wait in"),
        ("different_masks", "while other lanes of the warp wait in __syncwarp"),
        ("not_in_its_mask", "not in its own mask"),
        ("exits_before_a_collective", "exit"),
        ("shuffle_from_outside", "takes the value of lane 20"),
        ("half_a_warp_at_barrier", "whose warp came"),
        ("ldmatrix_by_half_a_warp", "ldmatrix"),
    ],
)
def test_divergence(name, words):
    objects(name, "divergence", words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("barrier_counts_disagree", "threads, while others of this generation said"),
        ("barrier_of_33", "not a multiple of 32"),
        ("barrier_16", "there is no barrier 16"),
        ("barrier_arrives_twice", "arrives twice"),
    ],
)
def test_misuse_of_a_named_barrier(name, words):
    objects(name, "barrier", words)


def test_a_deadlock_lists_barriers_and_who_waits_where():
    name = "mbarrier_bytes_missing"
    objects(
        name,
        "deadlock",
        f"threads 0-63 wait at {line_of(name, 'mbarrier_wait')}",
        "for the mbarrier at tile",
        "parity 0, since phase 0",
        "phase 0 (parity 0) under way, 0 of 64 arrivals missing, 16 bytes missing",
    )


def test_a_deadlock_tells_who_has_exited():
    objects(
        "one_warp_syncs",
        "deadlock",
        "threads 32-63 have exited",
        "named barrier 0: 32 of 64 threads have arrived",
    )


def test_polling_forever_is_a_livelock_that_lists_who_polls_what():
    name = "polling_forever"
    with settings.override(step_limit=10_000):
        objects(
            name,
            "livelock",
            "no end within step_limit, 10000 steps",
            f"threads 0-63 poll at {line_of(name, 'mbarrier_test_wait')} the mbarrier at tile",
            "parity 0",
            "phase 0 (parity 0) under way, 1 of 1 arrivals missing",
        )
