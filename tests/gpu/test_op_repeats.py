"""The same call again, and beside others: the order in which CTAs get their work changes no bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gpu_cases import Cases
from torch import Tensor

from fagen.ops.op import AttentionOp

pytestmark = pytest.mark.gpu

THD = pytest.param("thd", marks=pytest.mark.family("v2", "v3"))
SLEEP = 20_000_000  # clock cycles, about 10 ms: time to ask for all that is to run at once
Result = tuple[Tensor, ...]


def assert_equal(found: Result, expected: Result) -> None:
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def train(op: AttentionOp, inputs: tuple[Any, ...]) -> Result:
    """out, LSE and the gradients that out.sum() gives."""
    leaves = tuple(x.detach().requires_grad_() for x in inputs[:3])
    out, lse = op(*leaves, *inputs[3:], return_lse=True)
    return out.detach(), lse.detach(), *torch.autograd.grad(out.sum(), leaves)


@pytest.mark.parametrize("layout", ["bshd", THD])
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_repeats_are_bit_equal(cases: Cases, head_dim: int, mask: str, layout: str) -> None:
    op = cases.op(head_dim=head_dim, mask=mask, layout=layout)
    inputs = cases.inputs(op, 3, 1500, 1700, 16, 4)
    first = cases.run(op, *inputs)
    cases.assert_result(op, inputs, first)
    for _ in range(20):
        assert_equal(op(*inputs, return_lse=True), first)


@pytest.fixture
def streams() -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    return torch.cuda.Stream(), torch.cuda.Stream()


def work(cases: Cases, op: AttentionOp) -> list[tuple[tuple[Any, ...], Result]]:
    """For each of two streams inputs and their result: too few items to fill the GPU, so that both run."""
    both = [cases.inputs(op, 1, length, length, 4, seed=seed) for seed, length in enumerate((1000, 1300))]
    return [(inputs, op(*inputs, return_lse=True)) for inputs in both]


def side_by_side(streams: tuple[torch.cuda.Stream, ...], *calls: Callable[[], Any]) -> list[list[Any]]:
    """What 20 calls give on each stream; all are asked for before the first of them runs."""
    current = torch.cuda.current_stream()
    torch.cuda._sleep(SLEEP)
    for stream in streams:
        stream.wait_stream(current)
    results: list[list[Any]] = [[] for _ in streams]
    for _ in range(20):
        for stream, call, found in zip(streams, calls, results, strict=True):
            with torch.cuda.stream(stream):
                found.append(call())
    torch.cuda.synchronize()
    return results


@pytest.mark.parametrize("layout", ["bshd", THD])
def test_two_streams_at_once(cases: Cases, streams: tuple[torch.cuda.Stream, ...], layout: str) -> None:
    op = cases.op(layout=layout)
    (a, a_result), (b, b_result) = work(cases, op)
    found = side_by_side(streams, lambda: op(*a, return_lse=True), lambda: op(*b, return_lse=True))
    for results, expected in zip(found, (a_result, b_result), strict=True):
        for result in results:
            assert_equal(result, expected)


@pytest.mark.parametrize("layout", ["bshd", THD])
def test_two_streams_train_at_once(cases: Cases, streams: tuple[torch.cuda.Stream, ...], layout: str) -> None:
    """Each call has workspaces of its own."""
    always = cases.family == "v1"
    op = cases.op(layout=layout) if always else cases.op(layout=layout, deterministic=True)
    (a, _), (b, _) = work(cases, op)
    expected = train(op, a), train(op, b)
    found = side_by_side(streams, lambda: train(op, a), lambda: train(op, b))
    for results, wanted in zip(found, expected, strict=True):
        for result in results:
            assert_equal(result, wanted)


def test_two_graphs_at_once(cases: Cases, streams: tuple[torch.cuda.Stream, ...]) -> None:
    """Beside each other, and beside calls on the stream that they were captured on."""
    op = cases.op()
    todo = work(cases, op)
    graphs, outputs = [], []
    for inputs, _ in todo:
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            outputs.append([op(*inputs, return_lse=True) for _ in range(3)])
    for x in (x for results in outputs for result in results for x in result):
        x.fill_(torch.nan)
    inputs, expected = todo[0]
    calls = (*(graph.replay for graph in graphs), lambda: op(*inputs, return_lse=True))
    *_, eager = side_by_side((*streams, torch.cuda.current_stream()), *calls)
    for result in (*outputs[0], *eager):
        assert_equal(result, expected)
    for result in outputs[1]:
        assert_equal(result, todo[1][1])
