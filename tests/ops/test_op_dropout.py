"""Dropout: the argument, the seed that torch's generator gives, and the backward of the same mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import fagen
from fagen.errors import ArgumentError
from fagen.ops import dropout_mask, reference, reference_gradients
from fagen.ops.op import AttentionOp
from fagen.ops.seed import draw_seed

pytestmark = pytest.mark.usefixtures("on_cpu")

Spec = Callable[..., dict[str, Any]]

P = 0.25


def qkv(batch: int = 2, seqlen: int = 24, heads: int = 2) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    sizes = (batch, seqlen, heads, 64)
    return tuple(torch.randn(sizes, generator=generator).bfloat16().requires_grad_() for _ in "qkv")


@pytest.fixture
def op(problem_spec: Spec) -> AttentionOp:
    return fagen.load(problem_spec("dropout_op", dropout=True, mask="causal"))


def test_mask_of_the_seed_in_both_passes(op: AttentionOp) -> None:
    inputs, problem = qkv(), op.spec.problem
    seed = draw_seed(inputs[0], P)
    out, lse = torch.ops.fagen.dropout_op(*inputs, seed, 0.5, P)
    kept = dropout_mask.kept(int(seed), 2, 2, 24, 24, P)
    options = {"scale": 0.5, "dropout_p": P, "kept": kept}
    exact, exact_lse = reference.attention(problem, *inputs, **options)
    assert torch.equal(out, exact.bfloat16()) and torch.equal(lse, exact_lse.float())
    found = torch.autograd.grad(out.sum(), inputs)
    wanted = reference_gradients.gradients(problem, *inputs, dout=torch.ones_like(out), **options)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other.bfloat16())


def test_without_it_the_bits_are_those_of_no_dropout(op: AttentionOp, problem_spec: Spec) -> None:
    plain, inputs = fagen.load(problem_spec("dropout_none", mask="causal")), qkv()
    state = torch.get_rng_state()
    results = [own(*inputs) for own in (op, plain)]
    gradients = [torch.autograd.grad(out.sum(), inputs) for out in results]
    with torch.no_grad():
        results.append(op(*inputs, dropout_p=0.0))
    assert all(torch.equal(out, results[0]) for out in results)
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
    assert torch.equal(torch.get_rng_state(), state), "no seed is drawn"


@pytest.mark.parametrize("with_gradients", [False, True])
def test_seeds_come_from_torchs_generator(op: AttentionOp, with_gradients: bool) -> None:
    def two_calls() -> list[Tensor]:
        torch.manual_seed(1)
        with torch.set_grad_enabled(with_gradients):
            return [op(*qkv(), dropout_p=P).detach() for _ in range(2)]

    first, again = two_calls(), two_calls()
    assert not torch.equal(*first)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_a_checkpoint_repeats_its_mask(op: AttentionOp) -> None:
    inputs = qkv()

    def gradients(call: Callable[..., Any]) -> tuple[Tensor, ...]:
        torch.manual_seed(1)
        return torch.autograd.grad(call(*inputs).sum(), inputs)

    def attend(*inputs: Tensor) -> Tensor:
        return op(*inputs, dropout_p=P)

    repeated = gradients(lambda *x: checkpoint(attend, *x, use_reentrant=False))
    assert all(torch.equal(one, other) for one, other in zip(repeated, gradients(attend), strict=True))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (-0.1, r"^dropout_p: is -0\.1; allowed: from 0 to below 1"),
        (1.0, r"^dropout_p: is 1\.0; allowed: from 0 to below 1"),
        (float("nan"), r"^dropout_p: is nan"),
        ("0.1", r"^dropout_p: is a str; allowed: a float from 0 to below 1"),
        (None, r"^dropout_p: is a NoneType"),
        (torch.tensor(0.1), r"^dropout_p: is a Tensor"),
        ([0.1], r"^dropout_p: is a list"),
    ],
)
def test_wrong_probabilities(on_cpu: Any, op: AttentionOp, wrong: Any, message: str) -> None:
    for inputs in (qkv(), tuple(x.detach() for x in qkv())):
        with pytest.raises(ArgumentError, match=message):
            op(*inputs, dropout_p=wrong)
    assert on_cpu.launches == 0


def test_other_numbers_are_accepted(op: AttentionOp) -> None:
    for with_gradients in (False, True):
        with torch.set_grad_enabled(with_gradients):
            op(*qkv(), dropout_p=numpy.float32(0.5))  # type: ignore[arg-type]
            assert torch.equal(op(*qkv(), dropout_p=0), op(*qkv()))


def test_an_op_without_dropout_refuses_it(on_cpu: Any, problem_spec: Spec) -> None:
    op, inputs = fagen.load(problem_spec("dropout_none", mask="causal")), qkv()
    for some in (inputs, tuple(x.detach() for x in inputs)):
        with pytest.raises(ArgumentError, match=r"^dropout_p: is 0\.25; .*problem\.dropout: false"):
            op(*some, dropout_p=P)
    assert on_cpu.launches == 0
    with pytest.raises(Exception, match=r"dropout_p: is 0\.25; .*problem\.dropout: false"):
        torch.compile(op, fullgraph=True, backend="aot_eager")(*inputs, dropout_p=P)


def test_opcheck(op: AttentionOp) -> None:
    seed = draw_seed(qkv()[0], P)
    for p in (0.0, P):
        torch.library.opcheck(torch.ops.fagen.dropout_op.default, (*qkv(), seed), {"dropout_p": p})
    q, k, v = (x.detach() for x in qkv())
    out, lse = torch.ops.fagen.dropout_op(q, k, v, seed, None, P)
    arguments = (torch.ones_like(out), None, q, k, v, out, lse, seed, None, P)
    torch.library.opcheck(torch.ops.fagen.dropout_op_backward.default, arguments)


def test_packed_sequences(problem_spec: Spec) -> None:
    op = fagen.load(problem_spec("dropout_packed", dropout=True, layout="thd"))
    q, k, v = (x.detach()[0].requires_grad_() for x in qkv())
    offsets = torch.tensor([0, 5, 5, 20], dtype=torch.int32)
    packing, seed = (offsets, offsets, 15, 15), draw_seed(q, P)
    torch.library.opcheck(torch.ops.fagen.dropout_packed.default, (q, k, v, *packing, seed, None, P))
    torch.manual_seed(int(seed))
    found = torch.autograd.grad(op(q, k, v, *packing, dropout_p=P).sum(), (q, k, v))
    torch.manual_seed(int(seed))
    results = torch.ops.fagen.dropout_packed(q, k, v, *packing, draw_seed(q, P), None, P)
    for one, other in zip(found, torch.autograd.grad(results[0].sum(), (q, k, v)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.zeros(1), r"^seed: is torch\.float32; allowed: torch\.int64"),
        (torch.zeros(2, dtype=torch.int64), r"^seed: has shape \(2\); allowed: \(1\)"),
        (torch.zeros(1, dtype=torch.int64, device="meta"), r"^seed: is on meta; allowed: cpu, as q"),
    ],
)
def test_wrong_seeds(op: AttentionOp, wrong: Tensor, message: str) -> None:
    q, k, v = (x.detach() for x in qkv())
    out, lse = torch.ops.fagen.dropout_op(q, k, v, draw_seed(q, P), None, P)
    for call in (
        lambda: torch.ops.fagen.dropout_op(q, k, v, wrong, None, P),
        lambda: torch.ops.fagen.dropout_op_backward(out, None, q, k, v, out, lse, wrong, None, P),
    ):
        with pytest.raises(ArgumentError, match=message):
            call()


def test_compiled_calls_have_seeds_of_their_own(op: AttentionOp) -> None:
    def model(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return op(q * 2, k, v, dropout_p=P), op(q * 2, k, v, dropout_p=P)

    def run(model: Callable[..., Any]) -> tuple[Tensor, ...]:
        torch.manual_seed(1)
        one, other = model(*inputs)
        assert not torch.equal(one, other)
        return one, other, *torch.autograd.grad((one * other).sum(), inputs)

    torch._dynamo.reset()
    inputs = qkv()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for found, wanted in zip(run(compiled), run(model), strict=True):
        assert torch.equal(found, wanted)
