"""`fagen.attention` with ops that compute by the reference: which is asked, its cost, how it is traced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from dispatch_cases import ReferenceOp
from torch import Tensor

import fagen
from fagen.dispatch import choose, lookup
from fagen.errors import ArgumentError

Ops = dict[str, ReferenceOp]
HOST_SECONDS = 5e-6


def qkv(seqlen: int = 40) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn((1, seqlen, heads, 16), generator=generator).bfloat16() for heads in (4, 2, 2))


def packed() -> tuple[Any, ...]:
    offsets = torch.tensor([0, 15, 40], dtype=torch.int32)
    return *(x[0] for x in qkv()), offsets, offsets, 25, 25


def test_the_op_of_the_chosen_spec_is_called(ops: Ops) -> None:
    inputs = qkv()
    explanation = fagen.explain(*inputs, mask="causal", softcap=5.0)
    assert not ops, "explaining loads nothing"
    out, lse = fagen.attention(*inputs, mask="causal", softcap=5.0, return_lse=True)
    assert explanation.spec is not None and list(ops) == [explanation.spec.name]
    assert explanation.spec.problem.mask == "causal" and explanation.spec.problem.softcap == 5
    assert out.shape == inputs[0].shape and lse.shape == (1, 4, 40)


def test_a_problem_each(ops: Ops) -> None:
    inputs = qkv()
    calls: tuple[dict[str, Any], ...] = (
        {},
        {"mask": "causal"},
        {"mask": (4, 0)},
        {"softcap": 3.0},
        {"deterministic": True},
    )
    for options in calls:
        fagen.attention(*inputs, **options)
    fagen.attention(*(x.half() for x in inputs))
    fagen.attention(*packed())
    assert len(ops) == 7 and all(op.calls == 1 for op in ops.values())


def test_determinism_is_torchs_unless_said(ops: Ops) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        fagen.attention(*qkv())
        fagen.attention(*qkv(), deterministic=False)
    finally:
        torch.use_deterministic_algorithms(False)
    assert [op.spec.problem.deterministic for op in ops.values()] == [True, False]


def test_another_length_in_the_bucket_is_the_same_op(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    fagen.attention(*qkv(40))
    monkeypatch.setattr(choose, "_choose", lambda *_: pytest.fail("chosen again"))
    fagen.attention(*qkv(41))
    assert [op.calls for op in ops.values()] == [2]


def test_no_candidate_is_an_error_with_every_reason(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = choose.choice_of

    def none(request: Any) -> Any:
        found = choice(request)
        refused = (replace(one, refusal=one.refusal or "too large\nby 3 bytes") for one in found.candidates)
        return replace(found, candidates=tuple(refused), chosen=None)

    monkeypatch.setattr(lookup, "choice_of", none)
    with pytest.raises(ArgumentError, match=r"^no spec computes this on the emulator") as caught:
        fagen.attention(*qkv())
    lines = str(caught.value).splitlines()
    assert sum(": is for sm_90a" in line for line in lines) >= 5
    assert any("attention_v2" in line and line.endswith("too large") for line in lines)


def test_wrong_arguments_are_refused_before_a_choice(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "choice_of", lambda *_: pytest.fail("chosen"))
    q, k, v = qkv()
    wrong: dict[str, Callable[[], Any]] = {
        "q": lambda: fagen.attention(q.tolist(), k, v),
        "head_dim_v": lambda: fagen.attention(q, k, v[..., :1]),
        "mask": lambda: fagen.attention(q, k, v, mask=["causal"]),  # type: ignore[arg-type]
        "softcap": lambda: fagen.attention(q, k, v, softcap="50"),  # type: ignore[arg-type]
    }
    for name, call in wrong.items():
        with pytest.raises(ArgumentError, match=rf"^{name}: is"):
            call()


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused_in_words(ops: Ops, layout: torch.layout) -> None:
    q, k, v = (torch.nested.nested_tensor([x[0], x[0, :3]], layout=layout) for x in qkv())
    for call in (fagen.attention, fagen.explain):
        with pytest.raises(ArgumentError, match=r"^q: is a nested tensor; allowed: one tensor .*thd"):
            call(q, k, v)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"dropout_p": 1.0}, "1.0"),
        ({"dropout_p": "0"}, "a str"),
        ({"dropout_p": None}, "a NoneType"),
        ({"dropout_p": torch.tensor(0.5)}, "a Tensor"),
        ({"mask": torch.zeros(8, 8)}, r"tensor\(.{1,60}"),
        ({"mask": "causal" * 1000}, ".{1,60}"),
    ],
)
def test_explain_and_a_call_refuse_the_same(ops: Ops, options: dict[str, Any], found: str) -> None:
    (name,) = options
    for call in (fagen.explain, fagen.attention):
        with pytest.raises(ArgumentError, match=rf"^{name}: is {found}; allowed"):
            call(*qkv(), **options)


@pytest.mark.parametrize(("scale", "found"), [("1", "a str"), (0.0, "0.0")])
def test_explain_refuses_a_scale_as_ops_do(ops: Ops, scale: Any, found: str) -> None:
    with pytest.raises(ArgumentError, match=rf"^scale: is {found}; allowed"):
        fagen.explain(*qkv(), scale=scale)


def test_a_warm_call_costs_little(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatch layer alone, as the best of many runs; about 1.3 us on the machine it was written on."""
    inputs = qkv()

    def nothing(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(lookup, "load", lambda spec: nothing)
    call = fagen.attention
    call(*inputs, mask="causal")
    runs = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(1000):
            call(*inputs, mask="causal")
        runs.append((time.perf_counter() - start) / 1000)
    assert min(runs) <= HOST_SECONDS


def test_first_calls_from_many_threads_choose_once(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, start = [], threading.Barrier(16)
    choose_one = choose._choose
    monkeypatch.setattr(choose, "_choose", lambda *of: (chosen.append(of), choose_one(*of))[1])

    def work(_: int) -> Tensor:
        start.wait()
        return fagen.attention(*qkv(), softcap=7.0)

    with ThreadPoolExecutor(16) as pool:
        first, *others = pool.map(work, range(16), timeout=60)
    assert len(chosen) == len(ops) == 1
    assert all(torch.equal(first, other) for other in others)


def both_passes(call: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    leaves = [x.detach().requires_grad_() for x in inputs[:3]]
    out, lse = call(*leaves, *inputs[3:])
    return out, lse, *torch.autograd.grad(out.float().sum() + lse.sum(), leaves)


def test_one_graph_serves_every_length(ops: Ops) -> None:
    """With the gradients of the reference; each run gets the op that its own sizes have."""

    def model(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return fagen.attention(q, k, v, mask="causal", return_lse=True, scale=0.3)

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for seqlen in (17, 40, 100, 300):
        inputs = qkv(seqlen)
        found = both_passes(compiled, inputs)
        (op,) = ops.values()
        expected = both_passes(reference_of(op), inputs)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def reference_of(op: ReferenceOp) -> Callable[..., tuple[Tensor, Tensor]]:
    from fagen.ops import reference

    def call(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = reference.attention(op.spec.problem, q, k, v, scale=0.3)
        return out.to(q.dtype), lse.float()

    return call


def test_a_graph_holds_no_spec(ops: Ops) -> None:
    """It may be kept on disk for a process that chooses otherwise, or has not loaded the op of that spec."""
    found = set()

    def backend(module: Any, _: Any) -> Callable[..., Any]:
        found.update(node.target for node in module.graph.nodes if "fagen" in str(node.target))
        return module.forward

    torch._dynamo.reset()
    torch.compile(fagen.attention, fullgraph=True, backend=backend)(*qkv())
    assert found == {torch.ops.fagen._attention}


def test_packed_sequences_are_traced(ops: Ops) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(fagen.attention, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.equal(compiled(*packed()), fagen.attention(*packed()))


def test_opcheck(ops: Ops) -> None:
    leaves = [x.requires_grad_() for x in qkv()]
    rest = (None, None, None, None, None, 0.3, 0.0, None, 0, None, None, False, True)
    torch.library.opcheck(torch.ops.fagen._attention.default, (*leaves, *rest))


def test_wrong_arguments_are_refused_while_traced(ops: Ops) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(fagen.attention, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=r"head_dim: is 15; allowed: multiples of 8"):
        compiled(*(x[..., :15] for x in qkv()))
    assert not ops
