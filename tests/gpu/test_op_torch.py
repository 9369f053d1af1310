"""The op inside torch: streams, graphs, torch.compile, opcheck, threads, several devices."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_cases import Cases
from torch import Tensor

import fagen
from fagen.compile import nvrtc
from fagen.compile.artifact import Artifact
from fagen.emit.source import Source
from fagen.errors import ArgumentError, LaunchError
from fagen.hw.arch import ARCHES, arch_of_capability
from fagen.ops import forward
from fagen.paths import SPECS

pytestmark = pytest.mark.gpu

SLEEP = 100_000_000  # clock cycles, about 50 ms


def test_runs_on_the_current_stream(cases: Cases) -> None:
    op, stream = cases.op(head_dim=64), torch.cuda.Stream()
    inputs = [torch.zeros_like(x) for x in cases.inputs(op, 2, 256, 256, 4)]
    for seed in range(20):
        values = cases.inputs(op, 2, 256, 256, 4, seed=seed)
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


def test_launches_nothing_elsewhere(cases: Cases, tmp_path: Path) -> None:
    op, stream = cases.op(head_dim=64), torch.cuda.Stream()
    inputs = cases.inputs(op, 2, 256, 256, 4)
    op(*inputs)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        op(*inputs)  # a stream's first call zeroes its counters
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


def test_never_waits_for_the_device(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.inputs(op, 2, 256, 256, 4)
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


def test_replays_in_a_cuda_graph(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.inputs(op, 2, 200, 200, 4)
    op(*inputs)
    graph, result = captured(lambda: op(*inputs, return_lse=True))
    for seed in range(3):
        for x, value in zip(inputs, cases.inputs(op, 2, 200, 200, 4, seed=seed), strict=True):
            x.copy_(value)
        graph.replay()
        cases.assert_result(op, inputs, result)


@pytest.mark.family("v3")
def test_packed_sequences_in_a_cuda_graph(cases: Cases) -> None:
    """Other lengths at each replay, in the same tensors; rows that are left over are 0 and -inf."""
    op = cases.op(head_dim=64, layout="thd")
    longest = 300
    batches = [((300, 1, 150), (20, 300, 300)), ((0, 300, 300), (0, 10, 200)), ((7, 0, 0), (9, 0, 0))]
    inputs = cases.inputs(op, 3, longest, longest, 4, 2)
    op(*inputs)
    graph, result = captured(lambda: op(*inputs, return_lse=True))
    for seed, lengths in enumerate(batches):
        values = cases.packed(op, *lengths, 4, 2, seed=seed)
        for x, value in zip(inputs[:3], values[:3], strict=True):
            x.fill_(torch.nan)[: len(value)] = value
        for x, value in zip(inputs[3:5], values[3:5], strict=True):
            x.copy_(value)
        for x in result:
            x.fill_(torch.nan)
        graph.replay()
        cases.assert_result(op, inputs, result)
        (out, lse), used = result, sum(lengths[0])
        assert used < len(out) and torch.all(out[used:] == 0) and torch.all(lse[:, used:] == -torch.inf)


def test_first_call_may_be_inside_a_capture(cases: Cases) -> None:
    op = cases.op(name=f"first_in_capture_{cases.family}", head_dim=64)
    inputs = cases.inputs(op, 2, 200, 200, 4)
    graph, result = captured(lambda: op(*inputs, return_lse=True))
    graph.replay()
    cases.assert_result(op, inputs, result)


@pytest.mark.parametrize("with_lse", [False, True])
def test_compiles_without_a_graph_break(cases: Cases, with_lse: bool) -> None:
    op = cases.op(head_dim=64)
    project = torch.nn.Linear(256, 3 * 256, bias=False, dtype=torch.bfloat16, device=cases.device)

    def model(x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = (y.unflatten(-1, (4, 64)) for y in project(x).chunk(3, dim=-1))
        result = op(q, k, v, return_lse=with_lse)
        return (q, k, v, *result) if isinstance(result, tuple) else (q, k, v, result)

    torch._dynamo.reset()
    x = torch.randn((2, 200, 256), dtype=torch.bfloat16, device=cases.device)
    with torch.no_grad():
        q, k, v, out, *lse = result = torch.compile(model, fullgraph=True)(x)
        cases.assert_result(op, (q, k, v), (out, lse[0] if lse else op(q, k, v, return_lse=True)[1]))
        for found, eager in zip(result, model(x), strict=True):
            torch.testing.assert_close(found, eager, rtol=2e-2, atol=2e-2)


@pytest.mark.family("v3")
def test_packed_sequences_compile_without_a_graph_break(cases: Cases) -> None:
    op = cases.op(head_dim=64, layout="thd")
    project = torch.nn.Linear(256, 3 * 256, bias=False, dtype=torch.bfloat16, device=cases.device)

    def model(x: Tensor, *packing: Any) -> tuple[Tensor, ...]:
        q, k, v = (y.unflatten(-1, (4, 64)) for y in project(x).chunk(3, dim=-1))
        return q, k, v, *op(q, k, v, *packing, return_lse=True)

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True)
    for lengths in ((100, 0, 200, 30), (7, 90, 200, 33)):
        x = torch.randn((sum(lengths), 256), dtype=torch.bfloat16, device=cases.device)
        offsets = cases.offsets(lengths)
        packing = offsets, offsets, max(lengths), max(lengths)
        with torch.no_grad():
            q, k, v, out, lse = compiled(x, *packing)
        cases.assert_result(op, (q, k, v, *packing), (out, lse))


def test_one_compilation_serves_every_length(cases: Cases, monkeypatch: pytest.MonkeyPatch) -> None:
    op = cases.op(name=f"every_length_{cases.family}", head_dim=64)
    built: list[Source] = []

    def compile_source(source: Source) -> Artifact:
        built.append(source)
        return nvrtc.compile_source(source)

    monkeypatch.setattr(forward, "compile_source", compile_source)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(lambda q, k, v: op(q + 1, k, v, return_lse=True), fullgraph=True, dynamic=True)
    for i in range(20):
        q, k, v = cases.inputs(op, 2 + i % 5, 17 + 107 * i, 17 + 107 * i, 2)
        out, lse = compiled(q, k, v)
        cases.assert_result(op, (q + 1, k, v), (out, lse))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
    assert len(built) == 1


@pytest.mark.parametrize("layout", ["bshd", pytest.param("thd", marks=pytest.mark.family("v3"))])
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_opcheck(cases: Cases, mask: str, layout: str) -> None:
    op = cases.op(head_dim=64, mask=mask, layout=layout)
    torch_op = getattr(torch.ops.fagen, op.name).default
    torch.library.opcheck(torch_op, cases.inputs(op, 2, 100, 130, 4, 2), {"scale": 0.1})


def test_torch_op_is_the_same_op(cases: Cases) -> None:
    op = cases.op()
    inputs = cases.inputs(op, 2, 200, 200, 4)
    out, lse = getattr(torch.ops.fagen, op.name)(*inputs)
    expected, expected_lse = op(*inputs, return_lse=True)
    assert torch.equal(out, expected) and torch.equal(lse, expected_lse)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_gradient_is_refused_not_dropped(cases: Cases, which: int) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.inputs(op, 2, 200, 200, 4)
    expected = op(*inputs)
    inputs[which].requires_grad_()
    out = op(*inputs)
    assert torch.equal(out, expected)
    with pytest.raises(ArgumentError, match=r"require grad, but .* has no backward"):
        out.sum().backward()


def test_mixed_devices_and_dtypes(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    q, k, v = cases.inputs(op, 2, 200, 200, 4)
    with pytest.raises(ArgumentError, match=r"^k: is on cpu; allowed: CUDA devices"):
        op(q, k.cpu(), v)
    with pytest.raises(ArgumentError, match=r"^dtype: q is torch.float32, k is torch.float32, v is torch.bf"):
        op(q.float(), k.float(), v)
    cases.assert_right(op, q, k, v)


@pytest.mark.family("v2")
def test_pinned_to_another_arch(cases: Cases) -> None:
    own = arch_of_capability(torch.cuda.get_device_capability()).name
    other = next(name for name, arch in ARCHES.items() if name != own and "v2" in arch.families)
    op = fagen.load(SPECS / "a100_fa2.yaml", {"problem.head_dim": 64}, arch=other)
    with pytest.raises(LaunchError, match=rf"pinned to {other}; .*{own}"):
        op(*cases.inputs(op, 1, 128, 128, 1))


def test_first_calls_from_many_threads(cases: Cases) -> None:
    def own(index: int) -> Any:
        return cases.op(name=f"thread_{cases.family}_{index % 4}", head_dim=64)

    shared = cases.op(name=f"thread_{cases.family}_shared", head_dim=64)
    inputs, threads = cases.inputs(shared, 2, 200, 200, 4), 16
    start = threading.Barrier(threads)
    torch.cuda.synchronize()

    def work(index: int) -> list[tuple[Tensor, Tensor]]:
        stream = torch.cuda.Stream()
        start.wait()
        with torch.cuda.stream(stream):
            result = [op(*inputs, return_lse=True) for op in (shared, own(index))]
        stream.synchronize()
        return result

    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(work, range(threads), timeout=120))
    for result in results:
        for out_and_lse in result:
            cases.assert_result(shared, inputs, out_and_lse)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_of_another_device_than_the_current_one(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.inputs(op, 2, 200, 200, 4)
    elsewhere = tuple(x.to("cuda:1") for x in inputs)
    with torch.cuda.device(0):
        result = cases.run(op, *elsewhere)
        assert torch.cuda.current_device() == 0 and result[0].device == elsewhere[0].device
        cases.assert_result(op, elsewhere, result)
        with pytest.raises(ArgumentError, match="q is on cuda:0, k is on cuda:1"):
            op(inputs[0], elsewhere[1], elsewhere[2])
