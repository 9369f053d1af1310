"""Dropout: the mask of the reference, which differs from call to call, in the forward and in the backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpu_cases import Cases
from torch import Tensor

from fagen.errors import ArgumentError
from fagen.ops import reference
from fagen.ops.dropout_mask import kept
from fagen.ops.layout import Packing, shape_of
from fagen.ops.op import AttentionOp
from fagen.ops.reference_gradients import Gradients
from fagen.plan.launch import Shape

pytestmark = pytest.mark.family("v2")

P = 0.17
SEED = -6_917_529_027_641_081_857  # any int64: both halves of the key count


def with_seed(op: AttentionOp, *inputs: Any, seed: int, p: float) -> tuple[Tensor, Tensor]:
    """out and LSE of a call with the mask of this seed."""
    return getattr(torch.ops.fagen, op.name)(
        *inputs, inputs[0].new_full((1,), seed, dtype=torch.int64), None, p
    )


def mask(op: AttentionOp, inputs: tuple[Any, ...], seed: int, p: float) -> Tensor:
    """What a call with that seed keeps, [batch, heads_q, seqlen_q, seqlen_k]."""
    q, k, _, *packing = inputs
    shape = shape_of(op.spec.problem, q, k, Packing(*packing) if packing else None)
    return kept(seed, shape.batch, shape.heads_q, shape.seqlen_q, shape.seqlen_k, p).to(q.device)


def dropped(cases: Cases, op: AttentionOp) -> tuple[tuple[Tensor, ...], Tensor]:
    """Inputs whose out is P with dropout, as v is the identity; and P, [batch, heads, seqlen_q, seqlen_k]."""
    batch, heads, length = 2, 3, op.spec.problem.dim_v
    q, k, v = cases.inputs(op, batch, length, length, heads)
    v[:] = torch.eye(length, dtype=v.dtype, device=v.device).unsqueeze(1)
    exact, _ = reference.attention(op.spec.problem, q, k, v)
    return (q, k, v), exact.transpose(1, 2)


@pytest.mark.emulated
def test_what_is_kept_is_the_mask_scaled(cases: Cases) -> None:
    dim = 64 if cases.small else 128
    op = cases.op(dtype="fp16", head_dim=dim, mask="none", dropout=True)
    inputs, p = dropped(cases, op)
    out, _ = with_seed(op, *inputs, seed=SEED, p=P)
    found = out.transpose(1, 2)
    is_kept = mask(op, inputs, SEED, P)
    assert torch.equal(found != 0, is_kept)
    torch.testing.assert_close(found.double(), torch.where(is_kept, p / (1 - P), 0.0), rtol=4e-3, atol=1e-4)
    share, deviation = is_kept.double().mean().item(), (P * (1 - P) / is_kept.numel()) ** 0.5
    assert abs(share - (1 - P)) <= 3 * deviation
    planes = [*is_kept.flatten(0, 1), *(op(*inputs, dropout_p=P).transpose(1, 2) != 0).flatten(0, 1)]
    for i, one in enumerate(planes):
        assert not any(torch.equal(one, other) for other in planes[:i]), "of heads, entries and calls"


@pytest.mark.emulated
def test_the_generator_decides(cases: Cases) -> None:
    op = cases.op(dtype="fp16", head_dim=64, mask="none", dropout=True)
    inputs, _ = dropped(cases, op)
    torch.manual_seed(7)
    first = op(*inputs, dropout_p=P)
    second = op(*inputs, dropout_p=P)
    torch.manual_seed(7)
    assert torch.equal(op(*inputs, dropout_p=P), first) and not torch.equal(second, first)


CASES: list[tuple[Shape, dict[str, Any]]] = [
    (Shape(2, 128, 128, 3, 3), {"dtype": "fp16", "head_dim": 128, "mask": "none"}),
    (Shape(2, 200, 333, 4, 2), {"head_dim": 64, "mask": "causal"}),
    (
        Shape(2, 333, 200, 4, 4),
        {"dtype": "fp16", "head_dim": 96, "head_dim_v": 64, "mask": {"window": [50, 9]}},
    ),
    (Shape(3, 300, 260, 4, 2), {"head_dim": 256, "mask": "causal", "layout": "thd"}),
    (Shape(2, 200, 200, 2, 2), {"head_dim": 64, "mask": "causal", "softcap": 20.0}),
]
EMULATED_CASES: list[tuple[Shape, dict[str, Any]]] = [
    (Shape(2, 40, 70, 2, 1), {"dtype": "fp16", "head_dim": 64, "mask": "causal"}),
    (Shape(2, 40, 70, 2, 1), {"head_dim": 64, "mask": "none", "layout": "thd"}),
]


@pytest.mark.emulated(which=range(len(EMULATED_CASES)))
@pytest.mark.parametrize("which", range(len(CASES)))
def test_gradients_are_those_of_the_mask(cases: Cases, which: int) -> None:
    shape, problem = (EMULATED_CASES if cases.small else CASES)[which]
    op = cases.op(dropout=True, **problem)
    sizes = shape.batch, shape.seqlen_q, shape.seqlen_k, shape.heads_q, shape.heads_kv
    inputs = cases.inputs(op, *sizes)
    dout = cases.dout(op, *inputs)
    leaves = tuple(x.clone().requires_grad_() for x in inputs[:3])
    out, _ = with_seed(op, *leaves, *inputs[3:], seed=SEED, p=P)
    found = Gradients(*torch.autograd.grad(out, leaves, dout))

    dropout: dict[str, Any] = {"kept": mask(op, inputs, SEED, P), "dropout_p": P}
    exact, _ = reference.attention(op.spec.problem, *inputs[:5], **dropout)
    plain, _ = reference.plain_attention(op.spec.problem, *inputs[:5], **dropout)
    assert (out.double() - exact).abs().max() <= reference.allowed_error(op.spec.problem, plain, exact)
    cases.assert_near(op, inputs, found, dout=dout, **dropout)


@pytest.mark.emulated
def test_none_is_no_dropout(cases: Cases) -> None:
    op, without = (cases.op(head_dim=64, mask="causal", deterministic=True, dropout=x) for x in (True, False))
    inputs = cases.inputs(op, 1, 40, 70, 2)
    dout = cases.dout(op, *inputs)
    (out, lse), found = cases.gradients(op, *inputs, dout=dout, dropout_p=0.0)
    (expected_out, expected_lse), expected = cases.gradients(without, *inputs, dout=dout)
    for one, other in zip((out, lse, *found), (expected_out, expected_lse, *expected), strict=True):
        assert torch.equal(one, other)


@pytest.mark.emulated
@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, float("nan")])
def test_what_is_no_probability_is_refused(cases: Cases, p: float) -> None:
    op = cases.op(head_dim=64, dropout=True)
    inputs = cases.inputs(op, 1, 16, 16, 1)
    with pytest.raises(ArgumentError, match=r"^dropout_p: is .*allowed"):
        op(*inputs, dropout_p=p)


def test_every_replay_of_a_graph_has_its_own_mask(cases: Cases) -> None:
    """And its backward the same one: with v the identity, dV is P^T dO with what out shows of P."""
    op, p = cases.op(dtype="fp16", head_dim=128, mask="none", dropout=True), 0.1
    q, k, v = cases.inputs(op, 1, 128, 128, 4)
    v[:] = torch.eye(128, dtype=v.dtype, device=v.device).unsqueeze(1)
    dout = cases.dout(op, q, k, v)
    leaves = tuple(x.requires_grad_() for x in (q, k, v))

    def step() -> tuple[Tensor, ...]:
        out = op(*leaves, dropout_p=p)
        return out.detach(), *torch.autograd.grad(out, leaves, dout)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, *gradients = step()
    masks, states = [], [torch.cuda.get_rng_state()]
    inputs = tuple(x.detach() for x in leaves)
    for _ in range(3):
        graph.replay()
        states.append(torch.cuda.get_rng_state())
        masks.append(out.transpose(1, 2) != 0)
        cases.assert_near(op, inputs, Gradients(*gradients), dout=dout, kept=masks[-1], dropout_p=p)
    for things in (masks, states):
        for i, one in enumerate(things):
            assert not any(torch.equal(one, other) for other in things[:i])
