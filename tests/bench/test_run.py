from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest
import torch

from fagen.bench.clock import REST, ROUNDS, CudaClock
from fagen.bench.compare import DETERMINISTIC, OURS
from fagen.bench.expected import random_inputs
from fagen.bench.modes import MODES
from fagen.bench.peers.installed import installed
from fagen.bench.run import FEWEST, build, own_specs, rounds_within, run
from fagen.errors import PlanError
from fagen.ops.load import load
from fagen.plan.launch import Shape


def test_building_ahead_leaves_failures_to_whoever_runs_the_case(monkeypatch, todo, paper_cases):
    asked = []

    def load(spec):
        asked.append(spec.name)
        raise PlanError("no")

    monkeypatch.setattr("fagen.bench.run.load", load)
    build(todo)
    assert sorted(asked) == sorted({case.spec.name for case in todo})
    asked.clear()
    build(paper_cases("h200_fa2.yaml", (2048,), ("bwd",)))
    assert len(asked) == 4, "two masks, with and without problem.deterministic"


def test_only_a_backward_alone_is_also_timed_in_a_fixed_order(paper_cases):
    todo = paper_cases("h200_fa2.yaml", (2048,), ("fwd", "bwd", "fwd+bwd"))[:3]
    assert [list(own_specs(case)) for case in todo] == [[OURS], [OURS, DETERMINISTIC], [OURS]]
    assert own_specs(todo[1])[DETERMINISTIC].problem.deterministic
    (always, *_) = paper_cases("h200_fa2.yaml", (2048,), ("bwd",), deterministic=True)
    assert list(own_specs(always)) == [OURS]


def test_a_case_too_large_to_check_does_not_stop_the_others(monkeypatch, todo, allocator):
    def too_large(*_, **__):
        raise torch.OutOfMemoryError

    monkeypatch.setattr("fagen.bench.run.random_inputs", too_large)
    monkeypatch.setattr("fagen.bench.run.CudaAllocator", lambda: allocator)
    result = run(todo[0])
    assert list(result.outcomes) == [OURS]
    assert result.outcomes[OURS].problem.startswith("cannot be checked: shape: is 16,1024,1024,16,16;")


def test_what_takes_long_is_timed_less_often():
    assert rounds_within(1.0, 1e-3) == rounds_within(1.0, 0.0) == ROUNDS
    assert rounds_within(1.0, 0.1) == 10
    assert rounds_within(1.0, 3.0) == FEWEST


SMALL = Shape(2, 256, 256, 4, 4)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
def test_on_a_gpu_the_op_and_its_peers_are_timed(paper_cases, mode):
    (_, case) = paper_cases("h200_fa2.yaml", (256,), (mode,), head_dim=64)
    result = run(replace(case, shape=SMALL))
    assert list(result.outcomes) == [*own_specs(case), *installed()]
    for name in (*own_specs(case), "torch flash", "standard"):
        outcome = result.outcomes[name]
        assert outcome.seconds and outcome.peak_bytes, outcome.problem
    ours, standard = (result.outcomes[name].peak_bytes for name in (OURS, "standard"))
    assert ours and standard
    out, scores = 2 * 256 * 4 * 64 * 2, 2 * 4 * 256 * 256 * 2  # bytes
    assert ours >= out and standard >= ours + scores // 2


@pytest.mark.gpu
def test_on_a_gpu_decode_is_a_forward_with_one_query(paper_cases):
    (none, _) = paper_cases("h200_fa2.yaml", (256,), ("fwd",))
    result = run(replace(none, shape=Shape(4, 1, 512, 8, 2)))
    for name in (OURS, "torch flash", "standard"):
        assert result.outcomes[name].seconds, result.outcomes[name].problem


@pytest.mark.gpu
@pytest.mark.alone
def test_on_a_gpu_times_agree_with_events_around_many_calls(paper_cases):
    """PRF-4."""
    (_, case) = paper_cases("h200_fa2.yaml", (4096,), ("fwd",))
    measured = run(case).outcomes[OURS].median
    op = load(case.spec)
    inputs = random_inputs(case.spec.problem, case.shape, seed=0, device="cuda")
    means = []
    for _ in range(3):
        CudaClock().rest(REST)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        op(*inputs)
        start.record()
        for _ in range(100):
            op(*inputs)
        end.record()
        end.synchronize()
        means.append(start.elapsed_time(end) / 100 / 1e3)
    assert measured == pytest.approx(median(means), rel=0.05)
