from __future__ import annotations

import copy

import pytest
from rich.console import Console

from fagen.bench.changes import FASTER, FLOOR, LOST, SLOWER, changes_table, compared


@pytest.fixture
def changed(sample):
    """The sample as it is and once more, with one contender's median of the first case moved."""

    def make(contender: str, factor: float, spread: float = 0.0):
        old, new = copy.deepcopy(sample), copy.deepcopy(sample)
        for document, by in ((old, 1.0), (new, factor)):
            one = document["cases"][0]["contenders"][contender]
            one["median_us"] = 100.0 * by
            one["quartiles_us"] = [100.0 * by * (1 - spread / 2), 100.0 * by, 100.0 * by * (1 + spread / 2)]
        return old, new

    return make


def test_the_same_run_has_no_changes(sample):
    found = compared(sample, sample)
    timed = [c for case in sample["cases"] for c in case["contenders"].values() if c["median_us"]]
    assert found.changes == () and found.compared == len(timed) and not found.is_worse


@pytest.mark.parametrize(("factor", "verdict"), [(1.05, SLOWER), (0.9, FASTER)])
@pytest.mark.parametrize("contender", ["fagen", "FA3"])
def test_a_move_beyond_the_noise_is_a_change(changed, contender, factor, verdict):
    found = compared(*changed(contender, factor))
    (change,) = found.changes
    assert (change.contender, change.verdict) == (contender, verdict)
    assert (change.old_us, change.new_us) == (100.0, pytest.approx(100 * factor))
    assert found.is_worse == (contender == "fagen" and verdict == SLOWER)


@pytest.mark.parametrize(("spread", "factor"), [(0.0, 1 + 0.9 * FLOOR), (0.05, 1.09), (0.05, 0.91)])
def test_a_move_within_the_noise_is_none(changed, spread, factor):
    assert compared(*changed("fagen", factor, spread)).changes == ()


def test_more_than_both_spreads_is_beyond_the_noise(changed):
    (change,) = compared(*changed("fagen", 1.12, 0.05)).changes
    assert change.noise == pytest.approx(0.05 + 0.05 * 1.12)


def test_what_is_no_longer_timed_is_worse(sample):
    new = copy.deepcopy(sample)
    new["cases"][0]["contenders"]["fagen"].update(median_us=None, quartiles_us=None, problem="wrong")
    found = compared(sample, new)
    (change,) = found.changes
    assert change.verdict == LOST and found.is_worse


def test_only_common_cases_and_contenders_count(sample):
    new = copy.deepcopy(sample)
    new["cases"] = new["cases"][:2]
    del new["cases"][0]["contenders"]["FA3"]
    new["cases"][1]["contenders"]["mine"] = new["cases"][1]["contenders"]["fagen"]
    found = compared(sample, new)
    both = [name for case in new["cases"] for name, one in case["contenders"].items() if one["median_us"]]
    assert found.compared == len(both) - 1


def test_another_machine_is_said(sample):
    new = copy.deepcopy(sample)
    new["machine"].update(driver="999.0", sm_clock="1 MHz")
    assert compared(sample, new).machines == ("driver: was 580.0, is 999.0",)


def test_table_has_ours_first_and_the_rule(changed):
    old, new = changed("FA3", 2.0)
    new["cases"][1]["contenders"]["fagen"]["median_us"] *= 1.5
    console = Console(width=160)
    with console.capture() as capture:
        console.print(changes_table(compared(old, new)))
    heading, first, second, *rest = capture.get().splitlines()
    assert heading.split()[:2] == ["case", "contender"]
    assert "fagen" in first and "+50.0%" in first and "slower" in first
    assert "FA3" in second and "+100.0%" in second
    assert "interquartile" in " ".join(rest)
