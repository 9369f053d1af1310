"""Host time of a short call, on its own and in a CUDA graph; causal work beside work without a mask."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import pytest
import torch
from gpu_cases import Cases
from torch.nn.functional import scaled_dot_product_attention

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


def test_host_time(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    q, k, v = cases.inputs(op, 1, 128, 128, 4)
    by_head = [x.transpose(1, 2) for x in (q, k, v)]
    with torch.no_grad():
        ours = host_seconds(lambda: op(q, k, v))
        theirs = host_seconds(lambda: scaled_dot_product_attention(*by_head, is_causal=True))
    print(f"host time per call: {ours * 1e6:.1f} us; scaled_dot_product_attention: {theirs * 1e6:.1f} us")
    assert ours <= 100e-6
    assert ours <= theirs


def test_graph_overhead(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.inputs(op, 1, 128, 128, 4)
    op(*inputs)
    kernel = replay_seconds(100, lambda: op(*inputs)) / 100
    assert replay_seconds(1, lambda: op(*inputs)) <= kernel + 10e-6


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
