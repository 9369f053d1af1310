"""8-bit attention inside torch: repeated calls, streams, graphs, torch.compile, no gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fp8_cases import Fp8Cases
from gpu_cases import assert_same_bits
from torch import Tensor

from fagen.errors import ArgumentError

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("scale", ["head", "block"])
def test_every_call_has_the_same_bits(fp8_cases: Fp8Cases, scale: str) -> None:
    op = fp8_cases.op(fp8={"scale": scale})
    inputs = fp8_cases.inputs(op, 2, 1500, 1500, 8, 2)
    assert_same_bits(*(fp8_cases.run(op, *inputs) for _ in range(10)))


def test_a_graph_reads_the_descales_that_are_there_when_it_runs(fp8_cases: Fp8Cases) -> None:
    op = fp8_cases.op()
    inputs = fp8_cases.inputs(op, 2, 512, 512, 8, 2)
    op(*inputs)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        op(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = op(*inputs)
    for factor in (1.0, 2.0, 0.5):
        for descale in inputs[-3:]:
            descale.mul_(factor)
        graph.replay()
        assert torch.equal(out, op(*inputs))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_with_what_quantises(fp8_cases: Fp8Cases, dynamic: bool) -> None:
    op = fp8_cases.op()

    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        one = torch.full((1,), 0.01, device=q.device)
        q8, k8, v8 = ((x / 0.01).clamp(-448, 448).to(torch.float8_e4m3fn) for x in (q, k, v))
        return 2 * op(q8, k8, v8, q_descale=one, k_descale=one, v_descale=one)

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic)
    for length in (256, 320):
        given = tuple(torch.randn(2, length, 4, 128, device="cuda") for _ in "qkv")
        torch.testing.assert_close(compiled(*given), model(*given), rtol=2e-2, atol=2e-2)


def test_runs_on_the_current_stream(fp8_cases: Fp8Cases) -> None:
    op, stream = fp8_cases.op(head_dim=64), torch.cuda.Stream()
    inputs: tuple[Any, ...] = fp8_cases.inputs(op, 2, 256, 256, 4)
    wanted = op(*inputs)
    late = [torch.zeros_like(x) for x in inputs[-3:]]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        for x, value in zip(late, inputs[-3:], strict=True):
            x.copy_(value)
        out = op(*inputs[:-3], *late)
    stream.synchronize()
    assert torch.equal(out, wanted)


def test_gradients_are_refused(fp8_cases: Fp8Cases) -> None:
    op = fp8_cases.op(name="fp8_no_gradients")
    inputs = fp8_cases.inputs(op, 1, 64, 64, 2)
    inputs[-1].requires_grad_()
    out = op(*inputs)
    with pytest.raises(ArgumentError, match="require grad, but fp8_no_gradients has no backward"):
        out.sum().backward()
