"""Host time of a short call, on its own and in a CUDA graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

pytestmark = pytest.mark.gpu

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


def test_host_time(cases: Any) -> None:
    op = cases.op(head_dim=64)
    q, k, v = cases.qkv(op, 1, 128, 128, 4)
    by_head = [x.transpose(1, 2) for x in (q, k, v)]
    with torch.no_grad():
        ours = host_seconds(lambda: op(q, k, v))
        theirs = host_seconds(lambda: scaled_dot_product_attention(*by_head, is_causal=True))
    print(f"host time per call: {ours * 1e6:.1f} us; scaled_dot_product_attention: {theirs * 1e6:.1f} us")
    assert ours <= 100e-6
    assert ours <= theirs


def test_graph_overhead(cases: Any) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.qkv(op, 1, 128, 128, 4)
    op(*inputs)
    kernel = replay_seconds(100, lambda: op(*inputs)) / 100
    assert replay_seconds(1, lambda: op(*inputs)) <= kernel + 10e-6
