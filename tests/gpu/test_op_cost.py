"""Host time of a short call, on its own and in a CUDA graph; causal work beside work without a mask."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import pytest
import torch
from gpu_cases import Cases
from torch.nn.functional import scaled_dot_product_attention

import fagen
from fagen.bench.clock import CudaClock, interleaved

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

CALLS = 1000


def host_seconds(call: Callable[[], object]) -> float:
    """Host time per call; the shortest of five runs of CALLS calls, with room in the launch queue."""
    runs = []
    for _ in range(5):
        total = 0.0
        for _ in range(CALLS // 100):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(100):
                call()
            total += time.perf_counter() - start
        runs.append(total / CALLS)
    return min(runs)


def replay_seconds(calls: int, call: Callable[[], object]) -> float:
    """Time of one replay of a graph of `calls` calls, back to back with others."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    graph.replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(100):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / 100


@pytest.fixture(params=["op", "attention"])
def short(request: pytest.FixtureRequest, cases: Cases) -> Callable[[], object]:
    """A short call without gradients, of the family's op or of `fagen.attention`."""
    op = cases.op(head_dim=64)
    inputs = cases.inputs(op, 1, 128, 128, 4)
    if request.param == "op":
        return lambda: op(*inputs)
    if cases.family != "v2":
        pytest.skip("picks the family itself: once is enough")
    return lambda: fagen.attention(*inputs, mask="causal")


def test_host_time(cases: Cases, short: Callable[[], object]) -> None:
    q, k, v = cases.inputs(cases.op(head_dim=64), 1, 128, 128, 4)
    by_head = [x.transpose(1, 2) for x in (q, k, v)]
    short()
    with torch.no_grad():
        ours = host_seconds(short)
        theirs = host_seconds(lambda: scaled_dot_product_attention(*by_head, is_causal=True))
    print(f"host time per call: {ours * 1e6:.1f} us; scaled_dot_product_attention: {theirs * 1e6:.1f} us")
    assert ours <= 100e-6
    if cases.family != "v1":  # it allocates what it keeps in HBM
        assert ours <= theirs


def test_graph_overhead(short: Callable[[], object]) -> None:
    short()
    kernel = replay_seconds(100, short) / 100
    assert replay_seconds(1, short) <= kernel + 10e-6


@pytest.mark.parametrize("seqlen", [4096, 8192, 16384])
def test_causal_work_is_well_balanced(cases: Cases, seqlen: int) -> None:
    none, causal = (cases.op(mask=mask) for mask in ("none", "causal"))
    inputs = cases.inputs(none, 2, seqlen, seqlen, 16)
    times = interleaved([lambda: none(*inputs), lambda: causal(*inputs)], CudaClock())
    of_none, of_causal = map(median, times)
    share = (seqlen + 1) / (2 * seqlen)  # of the pairs
    assert share * of_none / of_causal >= 0.70, "TFLOP/s of visible pairs"


def test_the_clock_agrees_with_events_around_many_calls(cases: Cases) -> None:
    op = cases.op()
    inputs = cases.inputs(op, 4, 2048, 2048, 16)
    (times,) = interleaved([lambda: op(*inputs)], CudaClock())
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(100):
        op(*inputs)
    end.record()
    end.synchronize()
    assert median(times) == pytest.approx(start.elapsed_time(end) / 1e3 / 100, rel=0.05)
