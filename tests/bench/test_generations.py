from __future__ import annotations

import math
import sys

import pytest
import torch
from rich.console import Console

from fagen.bench import generations
from fagen.bench.compare import Outcome, Result
from fagen.bench.generations import ALLOWED, distance, generation_cases, table


def test_cases_are_both_passes_with_a_head_for_every_sm():
    todo = generation_cases("sm_90a")
    found = {(case.mode, case.mask, case.shape.seqlen_q) for case in todo}
    assert len(found) == len(todo) == 8
    assert all(case.shape.batch * case.shape.heads_q >= 128 for case in todo)


def test_table_says_how_much_faster_each_is_than_the_one_before():
    case = generation_cases("sm_90a")[0]
    outcomes = {
        name: Outcome(0.0, (ms / 1e3,) * 3) for name, ms in {"standard": 6.0, "v1": 3.0, "v2": 1.0}.items()
    }
    unknown = outcomes | {"v1": Outcome(problem="cannot run: no")}
    console = Console(width=160)
    with console.capture() as capture:
        console.print(table([Result(case, ALLOWED, outcomes), Result(case, ALLOWED, unknown)]))
    _, known, lacking, *_ = (line.split() for line in capture.get().splitlines())
    assert known[:3] == ["fwd", "none", "2048"]
    assert (known[3::3], known[5::3]) == (["6.000", "3.000", "1.000"], ["-", "2.00", "3.00"])
    flops = 4 * 128 * 2048 * 2048 * 128
    assert known[4] == f"{flops / 6e-3 / 1e12:.1f}"
    assert lacking[6:] == ["-", "-", "-", "1.000", known[10], "-"]


@pytest.mark.parametrize("found", [math.nan, 2.2])
def test_distance_is_a_share_of_the_largest_value_of_the_worst_tensor(found):
    wanted = (torch.tensor([1.0, -4.0]), torch.tensor([2.0]))
    assert distance(wanted, (wanted[0] + 0.04, wanted[1])) == pytest.approx(0.01)
    assert not distance(wanted, (wanted[0], torch.tensor([found]))) <= ALLOWED
    assert distance(wanted[0], wanted[0]) == 0


def test_it_takes_no_words(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["generations", "--help"])
    monkeypatch.setattr(generations, "arch_of_device", lambda _: pytest.fail("looks for a GPU"))
    with pytest.raises(SystemExit, match="usage"):
        generations.main()
