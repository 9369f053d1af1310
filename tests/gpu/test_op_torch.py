"""The op inside torch: streams, graphs, torch.compile, opcheck, several devices."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from fagen.ops import kernels
from fagen.ops.op import AttentionOp
from fagen.ops.reference_gradients import Gradients
from fagen.paths import SPECS

pytestmark = pytest.mark.gpu

SLEEP = 100_000_000  # clock cycles, about 50 ms
THD = pytest.param("thd", marks=pytest.mark.family("v2", "v3"))

Both = tuple[tuple[Tensor, Tensor], Gradients]  # (out, LSE), and what a gradient of out gives


def leaves(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same, of which q, k and v ask for gradients."""
    return (*(x.detach().requires_grad_() for x in inputs[:3]), *inputs[3:])


def both_passes(op: Callable[..., Any], inputs: tuple[Any, ...], dout: Tensor) -> Both:
    """What `op` does with `leaves`, forward and backward."""
    out, lse = op(*inputs, return_lse=True)
    gradients = torch.autograd.grad(out, inputs[:3], dout)
    return (out.detach(), lse.detach()), Gradients(*gradients)


def assert_both(cases: Cases, op: AttentionOp, inputs: tuple[Any, ...], dout: Tensor, found: Both) -> None:
    inputs = (*(x.detach() for x in inputs[:3]), *inputs[3:])
    cases.assert_result(op, inputs, found[0])
    cases.assert_near(op, inputs, found[1], dout=dout)


def test_runs_on_the_current_stream(cases: Cases) -> None:
    op, stream = cases.op(head_dim=64), torch.cuda.Stream()
    inputs = leaves(tuple(torch.zeros_like(x) for x in cases.inputs(op, 2, 256, 256, 4)))
    dout = cases.dout(op, *inputs)
    for seed in range(20):
        values = cases.inputs(op, 2, 256, 256, 4, seed=seed)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP)
            with torch.no_grad():
                for x, value in zip(inputs, values, strict=True):
                    x.copy_(value)
            results, gradients = both_passes(op, inputs, dout)
            copies = [x.clone() for x in (*results, *gradients)]
        stream.synchronize()
        assert_both(cases, op, values, dout, ((copies[0], copies[1]), Gradients(*copies[2:])))


def test_launches_nothing_elsewhere(cases: Cases, tmp_path: Path) -> None:
    op, stream = cases.op(head_dim=64), torch.cuda.Stream()
    inputs = leaves(cases.inputs(op, 2, 256, 256, 4))
    dout = cases.dout(op, *inputs)
    both_passes(op, inputs, dout)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        both_passes(op, inputs, dout)  # a stream's first call zeroes its counters
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1000)
            both_passes(op, inputs, dout)
        torch.cuda.synchronize()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    streams = {event["name"]: event["args"]["stream"] for event in events if event.get("cat") == "kernel"}
    if not streams:
        pytest.skip("the profiler sees no kernels on this machine")
    ours = [name for name in streams if name.startswith("fagen_")]
    assert len(ours) == len(streams) - 1 == (2 if cases.family == "v1" else 4), "and the one that sleeps"
    assert len(set(streams.values())) == 1


def test_never_waits_for_the_device(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    inputs = leaves(cases.inputs(op, 2, 256, 256, 4))
    dout = cases.dout(op, *inputs)
    both_passes(op, inputs, dout)
    torch.cuda.synchronize()
    torch.cuda._sleep(SLEEP)
    before = torch.cuda.Event()
    before.record()
    both_passes(op, inputs, dout)
    assert not before.query(), "the call came back while the GPU was still asleep"
    torch.cuda.synchronize()


def captured(call: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


def test_replays_in_a_cuda_graph(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    inputs = leaves(cases.inputs(op, 2, 200, 200, 4))
    dout = cases.dout(op, *inputs)
    both_passes(op, inputs, dout)
    graph, result = captured(lambda: both_passes(op, inputs, dout))
    for seed in range(3):
        with torch.no_grad():
            for x, value in zip(inputs, cases.inputs(op, 2, 200, 200, 4, seed=seed), strict=True):
                x.copy_(value)
        dout.copy_(cases.dout(op, *inputs, seed=seed))
        graph.replay()
        assert_both(cases, op, inputs, dout, result)


@pytest.mark.family("v2", "v3")
def test_packed_sequences_in_a_cuda_graph(cases: Cases) -> None:
    """Other lengths at each replay, in the same tensors; rows that are left over are 0 and -inf."""
    op = cases.op(head_dim=64, layout="thd")
    longest = 300
    batches = [((300, 1, 150), (20, 300, 300)), ((0, 300, 300), (0, 10, 200)), ((7, 0, 0), (9, 0, 0))]
    inputs = leaves(cases.inputs(op, 3, longest, longest, 4, 2))
    dout = cases.dout(op, *inputs)
    both_passes(op, inputs, dout)
    graph, result = captured(lambda: both_passes(op, inputs, dout))
    for seed, lengths in enumerate(batches):
        values = cases.packed(op, *lengths, 4, 2, seed=seed)
        with torch.no_grad():
            for x, value in zip(inputs[:3], values[:3], strict=True):
                x.fill_(torch.nan)[: len(value)] = value
        for x, value in zip(inputs[3:5], values[3:5], strict=True):
            x.copy_(value)
        dout.copy_(cases.dout(op, *inputs, seed=seed))
        for x in (*result[0], *result[1]):
            x.fill_(torch.nan)
        graph.replay()
        assert_both(cases, op, inputs, dout, result)
        (out, lse), used = result[0], sum(lengths[0])
        assert used < len(out) and torch.all(out[used:] == 0) and torch.all(lse[:, used:] == -torch.inf)


def test_first_call_may_be_inside_a_capture(cases: Cases) -> None:
    op = cases.op(name=f"first_in_capture_{cases.family}", head_dim=64)
    inputs = leaves(cases.inputs(op, 2, 200, 200, 4))
    dout = cases.dout(op, *inputs)
    graph, result = captured(lambda: both_passes(op, inputs, dout))
    graph.replay()
    assert_both(cases, op, inputs, dout, result)


def projected(cases: Cases) -> torch.nn.Linear:
    """q, k and v of 4 heads with head_dim 64, side by side."""
    torch.manual_seed(0)
    return torch.nn.Linear(256, 3 * 256, bias=False, dtype=torch.bfloat16, device=cases.device)


@pytest.mark.parametrize("with_lse", [False, True])
def test_compiles_without_a_graph_break(cases: Cases, with_lse: bool) -> None:
    op, project = cases.op(head_dim=64), projected(cases)

    def model(x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = (y.unflatten(-1, (4, 64)) for y in project(x).chunk(3, dim=-1))
        result = op(q, k, v, return_lse=with_lse)
        return (q, k, v, *result) if isinstance(result, tuple) else (q, k, v, result)

    def passes(model: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        results = model(x)
        loss = sum(y.float().square().sum() for y in results[3:])
        return *results, *torch.autograd.grad(loss, (x, project.weight))  # type: ignore[arg-type]

    torch._dynamo.reset()
    x = torch.randn((2, 200, 256), dtype=torch.bfloat16, device=cases.device, requires_grad=True)
    found, eager = passes(torch.compile(model, fullgraph=True)), passes(model)
    q, k, v, out, *others = (y.detach() for y in found)
    cases.assert_result(op, (q, k, v), (out, others[0] if with_lse else op(q, k, v, return_lse=True)[1]))
    for one, other in zip(found, eager, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2 * max(1.0, other.abs().max().item()))


@pytest.mark.family("v2", "v3")
def test_packed_sequences_compile_without_a_graph_break(cases: Cases) -> None:
    op, project = cases.op(head_dim=64, layout="thd"), projected(cases)

    def model(x: Tensor, *packing: Any) -> tuple[Tensor, ...]:
        q, k, v = (y.unflatten(-1, (4, 64)) for y in project(x).chunk(3, dim=-1))
        return q, k, v, *op(q, k, v, *packing, return_lse=True)

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True)
    for lengths in ((100, 0, 200, 30), (7, 90, 200, 33)):
        x = torch.randn((sum(lengths), 256), dtype=torch.bfloat16, device=cases.device)
        offsets = cases.offsets(lengths)
        packing = offsets, offsets, max(lengths), max(lengths)
        q, k, v, out, lse = compiled(x, *packing)
        dout = cases.dout(op, q, k, v, *packing)
        gradients = torch.autograd.grad(out, project.weight, dout)
        eager = torch.autograd.grad(model(x, *packing)[3], project.weight, dout)
        inputs = (*(y.detach() for y in (q, k, v)), *packing)
        cases.assert_result(op, inputs, (out.detach(), lse.detach()))
        scale = eager[0].abs().max().item()
        torch.testing.assert_close(gradients, eager, rtol=2e-2, atol=2e-2 * max(1.0, scale))


@pytest.mark.parametrize("layout", ["bshd", THD])
def test_one_compilation_serves_every_length(
    cases: Cases, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    op = cases.op(name=f"every_length_{cases.family}_{layout}", head_dim=64, layout=layout)
    compilations: list[list[Source]] = []

    def compile_sources(sources: list[Source]) -> tuple[Artifact, ...]:
        compilations.append(sources)
        return nvrtc.compile_sources(sources)

    monkeypatch.setattr(kernels, "compile_sources", compile_sources)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(op, fullgraph=True, dynamic=True)
    for i in range(20):
        inputs = leaves(cases.inputs(op, 2 + i % 5, 17 + 107 * i, 17 + 107 * i, 2))
        dout = cases.dout(op, *inputs)
        assert_both(cases, op, inputs, dout, both_passes(compiled, inputs, dout))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
    assert len(compilations) == 2, "each pass once"


@pytest.mark.parametrize("layout", ["bshd", THD])
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_opcheck(cases: Cases, mask: str, layout: str) -> None:
    # Deterministic, as the checks compare bits.
    deterministic: dict[str, Any] = {} if cases.family == "v1" else {"deterministic": True}
    op = cases.op(head_dim=64, mask=mask, layout=layout, **deterministic)
    forward, backward = (getattr(torch.ops.fagen, op.name + end).default for end in ("", "_backward"))
    inputs = cases.inputs(op, 2, 100, 130, 4, 2)
    torch.library.opcheck(forward, leaves(inputs), {"scale": 0.1})
    out, lse, *row_stats = forward(*inputs)
    q, k, v, *packing = inputs
    dout, dlse = cases.dout(op, *inputs), torch.ones_like(lse)
    torch.library.opcheck(backward, (dout, dlse, q, k, v, out, lse, *packing, *row_stats, 0.1))


@pytest.mark.family("v2")
def test_compiled_dropout(cases: Cases) -> None:
    """Two calls in one graph have masks of their own, and the backward has that of its forward."""
    op = cases.op(dtype="fp16", head_dim=64, mask="none", dropout=True)
    q, k, v = cases.inputs(op, 1, 64, 64, 2)
    v[:] = torch.eye(64, dtype=v.dtype, device=v.device).unsqueeze(1)
    q, k, v = leaves((q, k, v))
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda q, k, v: (op(q, k, v, dropout_p=0.3), op(q, k, v, dropout_p=0.3)), fullgraph=True
    )
    masks = []
    for _ in range(2):
        one, other = compiled(q, k, v)
        masks += [one != 0, other != 0]
        dout = torch.eye(64, dtype=v.dtype, device=v.device).unsqueeze(1).expand(one.shape)
        (dv,) = torch.autograd.grad(one, v, dout)
        assert torch.equal(dv.transpose(1, 3) != 0, masks[-2])
    for i, mask in enumerate(masks):
        assert not any(torch.equal(mask, other) for other in masks[:i])


def test_torch_op_is_the_same_op(cases: Cases) -> None:
    op = cases.op()
    inputs = cases.inputs(op, 2, 200, 200, 4)
    out, lse, *_ = getattr(torch.ops.fagen, op.name)(*inputs)
    expected, expected_lse = op(*inputs, return_lse=True)
    assert torch.equal(out, expected) and torch.equal(lse, expected_lse)


def test_a_gradient_is_refused_not_dropped(cases: Cases) -> None:
    op = cases.op(head_dim=64, passes=("forward",))
    q, k, v = cases.inputs(op, 2, 200, 200, 4)
    out = op(q.requires_grad_(), k, v)
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


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_of_another_device_than_the_current_one(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.inputs(op, 2, 200, 200, 4)
    elsewhere = tuple(x.to("cuda:1") for x in inputs)
    with torch.cuda.device(0):
        dq, *_ = cases.assert_gradients(op, *elsewhere)
        assert torch.cuda.current_device() == 0 and dq.device == elsewhere[0].device
        with pytest.raises(ArgumentError, match="q is on cuda:0, k is on cuda:1"):
            op(inputs[0], elsewhere[1], elsewhere[2])
