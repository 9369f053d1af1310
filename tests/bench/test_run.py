from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import median

import pytest
import torch

from fagen.bench.clock import REST, ROUNDS, CudaClock
from fagen.bench.compare import OURS, QUANTISING, is_ours
from fagen.bench.expected import random_inputs
from fagen.bench.modes import MODES
from fagen.bench.own import own_specs
from fagen.bench.peers.installed import installed
from fagen.bench.run import FEWEST, build, rounds_within, run
from fagen.errors import PlanError
from fagen.ops.load import load
from fagen.plan.launch import Shape


def random_inputs_on_cpu(wanted, problem, shape, seed, device, scale):
    assert scale == {"head": "tensor", "block": "block"}[wanted]
    return random_inputs(problem, shape, seed, "cpu", scale)


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


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("scale", ["head", pytest.param("block", marks=pytest.mark.slow)])
def test_8_bits_are_timed_beside_their_peers_with_quantising_and_in_16_bits(
    monkeypatch, paper_cases, allocator, clock, scale
):
    """In the emulator, one round."""
    monkeypatch.setattr("fagen.bench.run.random_inputs", partial(random_inputs_on_cpu, scale))
    monkeypatch.setattr("fagen.bench.run.CudaAllocator", lambda: allocator)
    monkeypatch.setattr("fagen.bench.run.CudaClock", lambda: clock)
    monkeypatch.setattr("fagen.bench.run.rounds_within", lambda *_: 1)
    (_, case) = paper_cases("h200_fp8_d64.yaml", (64,), ("fwd",), fp8={"scale": scale, "block": 128})
    result = run(replace(case, shape=Shape(1, 48, 48, 2, 1)))
    problems = {name: outcome.problem for name, outcome in result.outcomes.items()}
    assert list(problems) == [OURS, QUANTISING, "fagen bf16", "cuDNN FP8", "FA3 FP8"]
    refused = "cannot run: has no descales of blocks" if scale == "block" else ""
    assert problems == {name: "" if is_ours(name) else refused for name in problems}
    for name, outcome in result.outcomes.items():
        assert len(outcome.seconds) == (not problems[name])
    in_16_bits = result.outcomes["fagen bf16"].error
    assert in_16_bits is not None and in_16_bits < 1e-2, "the same values, rounded to 16 bits"


SMALL = Shape(2, 256, 256, 4, 4)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
def test_on_a_gpu_the_op_and_its_peers_are_timed(paper_cases, mode):
    (_, case) = paper_cases("h200_fa2.yaml", (256,), (mode,), head_dim=64)
    result = run(replace(case, shape=SMALL))
    assert list(result.outcomes) == [*own_specs(case), *installed(case.spec.problem)]
    for name in (*own_specs(case), "torch flash", "standard"):
        outcome = result.outcomes[name]
        assert outcome.seconds and outcome.peak_bytes, outcome.problem
    ours, standard = (result.outcomes[name].peak_bytes for name in (OURS, "standard"))
    assert ours and standard
    out, scores = 2 * 256 * 4 * 64 * 2, 2 * 4 * 256 * 256 * 2  # bytes
    assert ours >= out and standard >= ours + scores // 2


@pytest.mark.gpu
def test_on_a_gpu_8_bits_are_timed_beside_their_peers(paper_cases):
    (_, case) = paper_cases("h200_fp8_d64.yaml", (256,), ("fwd",))
    result = run(replace(case, shape=Shape(2, 512, 512, 4, 4)))
    assert list(result.outcomes) == [*own_specs(case), *installed(case.spec.problem)]
    for name, outcome in result.outcomes.items():
        assert outcome.seconds and outcome.peak_bytes, f"{name}: {outcome.problem}"


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
