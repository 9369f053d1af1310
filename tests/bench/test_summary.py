from __future__ import annotations

import pytest

from fagen.bench.summary import failures, summaries


def test_summary_is_the_geometric_mean_and_the_worst_case(todo, timed):
    results = [timed(todo[0], 1.0, flash=2.0), timed(todo[1], 1.0, flash=0.5), timed(todo[2], 1.0, flash=4.0)]
    (found,) = summaries(results)
    assert (found.peer, found.cases, found.worst) == ("flash", 3, 0.5)
    assert found.mean == pytest.approx(4 ** (1 / 3))
    assert str(found) == (
        "fwd     1.587 x flash (geometric mean of 3), at worst 0.500 x (h200_fa2, d128_none_2048, fwd)"
    )


def test_summary_counts_only_cases_in_which_both_were_timed(todo, timed):
    results = [
        timed(todo[0], None, flash=1.0, cudnn=None),
        timed(todo[1], 1.0, flash=None, cudnn=None),
        timed(todo[2], 1.0, flash=3.0),
    ]
    (found,) = summaries(results)
    assert (found.peer, found.cases, found.mean) == ("flash", 1, pytest.approx(3.0))


def test_each_mode_has_its_own_summary(paper_cases, timed):
    forward, backward, *_ = paper_cases("h200_fa2.yaml", (64,), ("fwd", "bwd"))
    found = summaries([timed(forward, 1.0, flash=2.0), timed(backward, 1.0, flash=3.0)])
    assert [(summary.mode, summary.mean) for summary in found] == [
        ("fwd", pytest.approx(2.0)),
        ("bwd", pytest.approx(3.0)),
    ]


def test_no_results_have_no_summary():
    assert summaries([]) == []


def test_failures_say_who_why_and_where_each_reason_once(todo, timed):
    found = failures([timed(todo[2], 1.0, flash=None), timed(todo[3], None, flash=None)])
    assert found == [
        "flash cannot run: no: h200_fa2, d128_causal_1024, fwd and 1 more",
        "fagen cannot run: no: h200_fa2, d128_causal_2048, fwd",
    ]
