"""`fagen.attention` on a GPU: right, by the spec that `fagen.explain` names, which is built once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_cases import Cases
from torch import Tensor

import fagen
from fagen.bench.expected import random_inputs
from fagen.compile.cache import ENV
from fagen.dispatch import choose
from fagen.dispatch.shipped import winners
from fagen.dispatch.target import target_of
from fagen.ops import kernels
from fagen.ops.reference_gradients import Gradients
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec
from fagen.spec.model import Spec
from fagen.tune.store import Entry, default_store
from fagen.tune.where import this_machine

pytestmark = pytest.mark.gpu


class Dispatched:
    """`fagen.attention` with these options: called as an op is."""

    def __init__(self, **options: Any):
        self.call = partial(fagen.attention, **options)
        self.options = options

    def __call__(self, *inputs: Any, **more: Any) -> Any:
        return self.call(*inputs, **more)

    def chosen(self, *inputs: Any) -> Spec:
        """The spec for these inputs."""
        spec = fagen.explain(*inputs, **self.options).spec
        assert spec is not None
        return spec


@pytest.fixture
def own() -> Cases:
    """Its ways to tell whether a result is right; it picks no family."""
    return Cases("v2", emulated=False)


def inputs_of(shape: Shape, head_dim: int = 64, dtype: str = "bf16", **problem: Any) -> tuple[Any, ...]:
    keys = {"dtype": dtype, "head_dim": head_dim, **problem}
    spec = load_spec({"name": "inputs", "family": "v2", "arch": "sm_80", "problem": keys})
    return random_inputs(spec.problem, shape, 0, "cuda")


def asking(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*(x.detach().requires_grad_() for x in inputs[:3]), *inputs[3:])


SHAPE = Shape(2, 200, 300, 4, 2)


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ({}, {"mask": "causal"}),
        ({"head_dim": 128}, {"mask": "causal"}),
        ({"head_dim": 128, "dtype": "fp16"}, {}),
        ({"head_dim": 72}, {"mask": (50, 0)}),
        ({"head_dim": 192, "head_dim_v": 128}, {"mask": "causal"}),
        ({"head_dim": 256}, {"softcap": 30.0}),
        ({"layout": "bhsd"}, {"mask": "causal", "layout": "bhsd"}),
        ({"layout": "thd"}, {"mask": "causal"}),
        ({}, {"deterministic": True}),
    ],
)
def test_right(own: Cases, problem: dict[str, Any], options: dict[str, Any]) -> None:
    inputs = inputs_of(SHAPE, **problem)
    call = Dispatched(**options)
    op: Any = fagen.load(call.chosen(*asking(inputs)))
    assert op.spec.family != "v1"
    dout = own.dout(op, *inputs)
    result, gradients = own.gradients(call, *inputs, dout=dout)  # type: ignore[arg-type]
    own.assert_result(op, inputs, result)
    own.assert_near(op, inputs, gradients, dout=dout)
    with torch.no_grad():
        own.assert_result(op, inputs, call(*inputs, return_lse=True))


def test_dropout_picks_a_family_that_has_it() -> None:
    q, k, v = inputs_of(SHAPE)
    spec = fagen.explain(q, k, v, dropout_p=0.5).spec
    assert spec is not None and spec.family == "v2"
    torch.manual_seed(0)
    out = fagen.attention(q, k, v, dropout_p=0.5)
    torch.manual_seed(0)
    assert torch.equal(out, fagen.load(spec)(q, k, v, dropout_p=0.5))


def test_the_gpu_is_known_and_specs_are_planned_for_it() -> None:
    explanation = fagen.explain(*inputs_of(SHAPE), mask="causal")
    target = target_of(torch.device("cuda", torch.cuda.current_device()))
    assert explanation.choice.target == target and target.product == torch.cuda.get_device_name()
    assert explanation.spec is not None
    assert (explanation.spec.arch, explanation.spec.device) == (target.arch, target.device.name)
    print(explanation)


def test_explain_names_the_kernel_that_runs() -> None:
    inputs = inputs_of(SHAPE)
    spec = fagen.explain(*inputs, mask="causal").spec
    assert spec is not None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        fagen.attention(*inputs, mask="causal")
        torch.cuda.synchronize()
    names = {event.key for event in profile.key_averages() if event.key.startswith("fagen_")}
    assert names == {f"fagen_{spec.name}_fwd"}


def test_a_second_call_builds_and_chooses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = inputs_of(SHAPE)
    call = Dispatched(mask="causal", softcap=61.0)
    first = call(*inputs)
    monkeypatch.setattr(kernels, "compile_sources", lambda *_: pytest.fail("built again"))
    monkeypatch.setattr(choose, "_choose", lambda *_: pytest.fail("chosen again"))
    assert torch.equal(call(*inputs), first)


def test_what_was_tuned_comes_first(own: Cases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spec that nobody else would pick, put where `fagen tune` puts its own."""
    monkeypatch.setenv(ENV, str(tmp_path))
    inputs, call = inputs_of(SHAPE), Dispatched(mask="causal", softcap=62.0)
    untuned = fagen.explain(*inputs, **call.options)
    assert untuned.choice.chosen is not None and untuned.choice.chosen.source != "tuned"
    target = untuned.choice.target
    keys = {"name": "tuned_here", "family": "v2", "arch": target.arch, "device": target.device.name}
    problem = untuned.choice.request.problem
    spec = load_spec(
        keys
        | {"problem": problem.model_dump(), "schedule": {"tile": {"q": 64, "kv": 32}, "stages": {"kv": 2}}}
    )
    entry = Entry(
        problem=problem,
        shape=untuned.shape,
        direction="forward",
        where=this_machine(),
        spec=spec,
        tiling=plan(spec).tiling,
        seconds=1e-5,
        beat=untuned.choice.chosen.name,
        beat_seconds=2e-5,
        asked="",
        rank=1,
        timed=1,
        feasible=1,
    )
    default_store().put(entry)
    monkeypatch.setattr(choose, "_choices", {})
    assert call.chosen(*inputs).name == "tuned_here"
    assert "tuned on this GPU" in str(fagen.explain(*inputs, **call.options))
    op: Any = fagen.load(spec)
    own.assert_result(op, inputs, call(*inputs, return_lse=True))
    assert op.forward.kernels._loaded, "it was this op that ran"
    monkeypatch.setattr(choose, "_choices", {})
    default_store().put(replace(entry, where=replace(entry.where, driver="1.0")))
    chosen = fagen.explain(*inputs, **call.options).choice.chosen
    assert chosen is not None and chosen.source != "tuned", "of another driver"


def test_what_ships_as_tuned_for_a_shape_is_picked_for_it_and_right(
    own: Cases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENV, str(tmp_path))  # nothing was tuned here
    monkeypatch.setattr(choose, "_choices", {})
    here = target_of(torch.device("cuda", torch.cuda.current_device())).device.name
    ours = [one for one in winners() if (one.named.name, one.spec.device) == ("vit_l_16_train", here)]
    if not ours:
        pytest.skip(f"nothing ships as tuned for vit_l_16_train on {here}")
    inputs, call = inputs_of(ours[0].named.shape), Dispatched()
    assert call.chosen(*inputs).name == ours[0].spec.name
    assert "tuned for vit_l_16_train" in str(fagen.explain(*inputs))
    op: Any = fagen.load(call.chosen(*asking(inputs)))
    dout = own.dout(op, *inputs)
    result, gradients = own.gradients(call, *inputs, dout=dout)  # type: ignore[arg-type]
    own.assert_result(op, inputs, result)
    own.assert_near(op, inputs, gradients, dout=dout)


def test_first_call_inside_a_capture(own: Cases) -> None:
    inputs, call = inputs_of(SHAPE), Dispatched(mask="causal", softcap=63.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call(*inputs, return_lse=True)
    graph.replay()
    own.assert_result(fagen.load(call.chosen(*inputs)), inputs, result)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_graph_break(own: Cases, dynamic: bool) -> None:
    def model(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return fagen.attention(q, k, v, mask="causal", return_lse=True)

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled: Callable[..., Any] = torch.compile(model, fullgraph=True, dynamic=dynamic)
    call = Dispatched(mask="causal")
    for seqlen in (200, 333, 1000, 2000) if dynamic else (200,):
        inputs = inputs_of(replace(SHAPE, seqlen_q=seqlen, seqlen_k=seqlen))
        op: Any = fagen.load(call.chosen(*asking(inputs)))
        dout = own.dout(op, *inputs)
        leaves = asking(inputs)
        out, lse = compiled(*leaves)
        gradients = Gradients(*torch.autograd.grad(out, leaves, dout))
        own.assert_result(op, inputs, (out.detach(), lse.detach()))
        own.assert_near(op, inputs, gradients, dout=dout)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
