from __future__ import annotations

import json
import math

import pytest
from rich.console import Console

from fagen.bench.compare import OURS, Outcome, Result
from fagen.bench.report import failures, summaries, table, to_json


def text(results) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(table(results))
    return capture.get()


def test_summary_is_the_geometric_mean_and_the_worst_case(todo, timed):
    results = [timed(todo[0], 1.0, flash=2.0), timed(todo[1], 1.0, flash=0.5), timed(todo[2], 1.0, flash=4.0)]
    (found,) = summaries(results)
    assert (found.peer, found.cases, found.worst) == ("flash", 3, 0.5)
    assert found.mean == pytest.approx(4 ** (1 / 3))
    assert str(found) == (
        "1.587 x flash (geometric mean of 3), at worst 0.500 x (h200_fa2, mask none, S 2048)"
    )


def test_summary_counts_only_cases_in_which_both_were_timed(todo, timed):
    results = [
        timed(todo[0], None, flash=1.0, cudnn=None),
        timed(todo[1], 1.0, flash=None, cudnn=None),
        timed(todo[2], 1.0, flash=3.0, cudnn=None),
    ]
    (found,) = summaries(results)
    assert (found.peer, found.cases, found.mean) == ("flash", 1, pytest.approx(3.0))


def test_table_has_a_row_per_case(todo, timed):
    results = [timed(todo[0], 1e-3, flash=2e-3), timed(todo[1], None, flash=1e-3)]
    heading, first, second, *_ = text(results).splitlines()
    assert " ".join(heading.split()) == "spec pass mask d S ms fagen plan flash x error allowed"
    flops = 4 * 16 * 16 * 1024 * 1024 * 128
    ms, tflops, plan, *rest = first.split()[5:]
    assert ms == "1.000"
    assert tflops == f"{flops / 1e-3 / 1e12:.1f}"
    assert float(plan) > 100
    assert rest == [f"{flops / 2e-3 / 1e12:.1f}", "2.000", "1.0e-03", "2.0e-03"]
    assert second.split()[5:7] == ["-", "-"] and second.split()[9:11] == ["-", "-"]


def test_no_results_is_an_empty_table():
    assert text([]).split()[0] == "spec"
    assert summaries([]) == []


def test_failures_say_who_where_and_why(todo, timed):
    assert failures([timed(todo[2], 1.0, flash=None)]) == [
        "h200_fa2, mask causal, S 1024: flash cannot run: no"
    ]


def test_json_holds_every_case_with_median_and_spread(todo):
    times = tuple(i * 1e-6 for i in (1, 2, 3, 4, 5, 6, 7))
    outcomes = {OURS: Outcome(0.001, times), "flash": Outcome(math.nan, problem="wrong")}
    found = to_json([Result(todo[2], 0.002, outcomes)], {"device": "a GPU"})
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["machine"] == {"device": "a GPU"}
    (case,) = found["cases"]
    assert (case["spec"], case["pass"], case["shape"]["batch"]) == ("h200_fa2", "forward", 16)
    assert case["problem"]["mask"] == "causal"
    assert case["flops"] == 4 * 16 * 16 * (1024 * 1025 // 2) * 128
    assert case["contenders"]["flash"] == {
        "median_us": None,
        "quartiles_us": None,
        "error": None,
        "problem": "wrong",
        "tflops": None,
    }
    ours = case["contenders"][OURS]
    assert (ours["median_us"], ours["quartiles_us"]) == (4.0, [2.0, 4.0, 6.0])
    assert ours["tflops"] == pytest.approx(case["flops"] / 4e-6 / 1e12)
