"""The op inside torch: streams, graphs, torch.compile, opcheck, threads, several devices."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fagen
from fagen.errors import ArgumentError, LaunchError
from fagen.hw.arch import ARCHES, arch_of_capability
from fagen.paths import SPECS

pytestmark = pytest.mark.gpu

SLEEP = 100_000_000  # clock cycles, about 50 ms


def test_runs_on_the_current_stream(cases: Any) -> None:
    op, stream = cases.op(head_dim=64), torch.cuda.Stream()
    inputs = [torch.zeros_like(x) for x in cases.qkv(op, 2, 256, 256, 4)]
    for seed in range(20):
        values = cases.qkv(op, 2, 256, 256, 4, seed=seed)
        expected = op(*values)
        copy = torch.zeros_like(expected)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP)
            for x, value in zip(inputs, values, strict=True):
                x.copy_(value)
            copy.copy_(op(*inputs))
        stream.synchronize()
        assert torch.equal(copy, expected)


def test_launches_nothing_elsewhere(cases: Any, tmp_path: Path) -> None:
    op, stream = cases.op(head_dim=64), torch.cuda.Stream()
    inputs = cases.qkv(op, 2, 256, 256, 4)
    op(*inputs)
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1000)
            op(*inputs)
        torch.cuda.synchronize()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kernels = {event["name"]: event["args"]["stream"] for event in events if event.get("cat") == "kernel"}
    if not kernels:
        pytest.skip("the profiler sees no kernels on this machine")
    ours = {stream for name, stream in kernels.items() if name.startswith("fagen_")}
    assert len(kernels) == 2 and ours == set(kernels.values())


def test_never_waits_for_the_device(cases: Any) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.qkv(op, 2, 256, 256, 4)
    op(*inputs)
    torch.cuda.synchronize()
    torch.cuda._sleep(SLEEP)
    before = torch.cuda.Event()
    before.record()
    op(*inputs, return_lse=True)
    assert not before.query(), "the call came back while the GPU was still asleep"
    torch.cuda.synchronize()


def captured(call: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


def test_replays_in_a_cuda_graph(cases: Any) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.qkv(op, 2, 200, 200, 4)
    op(*inputs)
    graph, result = captured(lambda: op(*inputs, return_lse=True))
    for seed in range(3):
        for x, value in zip(inputs, cases.qkv(op, 2, 200, 200, 4, seed=seed), strict=True):
            x.copy_(value)
        graph.replay()
        cases.assert_result(op, inputs, result)


def test_first_call_may_be_inside_a_capture(cases: Any) -> None:
    op = fagen.load(SPECS / "a100_fa2.yaml", {"name": "first_in_capture", "problem.head_dim": 64})
    inputs = cases.qkv(op, 2, 200, 200, 4)
    graph, result = captured(lambda: op(*inputs, return_lse=True))
    graph.replay()
    cases.assert_result(op, inputs, result)


@pytest.mark.parametrize("with_lse", [False, True])
def test_compiles_without_a_graph_break(cases: Any, with_lse: bool) -> None:
    op = cases.op(head_dim=64)
    project = torch.nn.Linear(256, 3 * 256, bias=False, dtype=torch.bfloat16, device=cases.device)

    def model(x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = (y.unflatten(-1, (4, 64)) for y in project(x).chunk(3, dim=-1))
        result = op(q, k, v, return_lse=with_lse)
        return (q, k, v, *result) if isinstance(result, tuple) else (q, k, v, result)

    torch._dynamo.reset()
    x = torch.randn((2, 200, 256), dtype=torch.bfloat16, device=cases.device)
    with torch.no_grad():
        q, k, v, *result = torch.compile(model, fullgraph=True)(x)
        if not with_lse:
            result.append(op(q, k, v, return_lse=True)[1])
        cases.assert_result(op, (q, k, v), tuple(result))
        for found, eager in zip(model(x), (q, k, v, *result), strict=False):
            torch.testing.assert_close(found, eager, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_opcheck(cases: Any, mask: str) -> None:
    op = cases.op(head_dim=64, mask=mask)
    torch_op = getattr(torch.ops.fagen, op.name).default
    torch.library.opcheck(torch_op, cases.qkv(op, 2, 100, 130, 4, 2), {"scale": 0.1})


def test_torch_op_is_the_same_op(cases: Any) -> None:
    op = cases.op()
    inputs = cases.qkv(op, 2, 200, 200, 4)
    out, lse = torch.ops.fagen.a100_fa2(*inputs)
    expected, expected_lse = op(*inputs, return_lse=True)
    assert torch.equal(out, expected) and torch.equal(lse, expected_lse)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_gradient_is_refused_not_dropped(cases: Any, which: int) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.qkv(op, 2, 200, 200, 4)
    expected = op(*inputs)
    inputs[which].requires_grad_()
    out = op(*inputs)
    assert torch.equal(out, expected)
    with pytest.raises(ArgumentError, match=r"require grad, but .* has no backward"):
        out.sum().backward()


def test_mixed_devices_and_dtypes(cases: Any) -> None:
    op = cases.op(head_dim=64)
    q, k, v = cases.qkv(op, 2, 200, 200, 4)
    with pytest.raises(ArgumentError, match=r"^k: is on cpu; allowed: CUDA devices"):
        op(q, k.cpu(), v)
    with pytest.raises(ArgumentError, match=r"^dtype: q is torch.float32, k is torch.float32, v is torch.bf"):
        op(q.float(), k.float(), v)
    cases.assert_right(op, q, k, v)


def test_pinned_to_another_arch(cases: Any) -> None:
    own = arch_of_capability(torch.cuda.get_device_capability()).name
    other = next(name for name, arch in ARCHES.items() if name != own and "v2" in arch.families)
    op = fagen.load(SPECS / "a100_fa2.yaml", {"problem.head_dim": 64}, arch=other)
    with pytest.raises(LaunchError, match=rf"pinned to {other}; .*{own}"):
        op(*cases.qkv(op, 1, 128, 128, 1))


def test_first_calls_from_many_threads(cases: Any) -> None:
    def own(index: int) -> Any:
        changed = {"name": f"thread_{index % 4}", "problem.head_dim": 64}
        return fagen.load(SPECS / "a100_fa2.yaml", changed)

    shared = fagen.load(SPECS / "a100_fa2.yaml", {"name": "thread_shared", "problem.head_dim": 64})
    inputs, threads = cases.qkv(shared, 2, 200, 200, 4), 16
    start = threading.Barrier(threads)
    results: dict[int, list[tuple[Tensor, Tensor]]] = {}
    torch.cuda.synchronize()

    def work(index: int) -> None:
        stream = torch.cuda.Stream()
        start.wait()
        with torch.cuda.stream(stream):
            results[index] = [op(*inputs, return_lse=True) for op in (shared, own(index))]
        stream.synchronize()

    workers = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert not any(worker.is_alive() for worker in workers)
    assert len(results) == threads
    for result in results.values():
        for out_and_lse in result:
            cases.assert_result(shared, inputs, out_and_lse)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_of_another_device_than_the_current_one(cases: Any) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.qkv(op, 2, 200, 200, 4)
    elsewhere = tuple(x.to("cuda:1") for x in inputs)
    with torch.cuda.device(0):
        result = cases.run(op, *elsewhere)
        assert torch.cuda.current_device() == 0 and result[0].device == elsewhere[0].device
        cases.assert_result(op, elsewhere, result)
        with pytest.raises(ArgumentError, match="q is on cuda:0, k is on cuda:1"):
            op(inputs[0], elsewhere[1], elsewhere[2])
