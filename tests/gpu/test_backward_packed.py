"""Gradients of packed sequences (layout thd): lengths of every kind, rows of no sequence."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from gpu_cases import Cases

from fagen.bench.expected import random_like
from fagen.errors import ArgumentError

pytestmark = pytest.mark.family("v2", "v3")

MASKS: dict[str, Any] = {"none": "none", "causal": "causal", "window": {"window": [100, 30]}}


@pytest.mark.emulated("v2")
def test_more_queries_than_keys(cases: Cases) -> None:
    op = cases.op(layout="thd", dtype="fp16", head_dim=32, mask="causal")
    q, k, v, *packing = cases.packed(op, (76, 34, 146), (1, 1, 1), 1)
    inputs = (*(3 * x for x in (q, k, v)), *packing)
    found = cases.assert_gradients(op, *inputs, dout=torch.ones_like(q))
    blind = torch.ones(256, dtype=torch.bool, device=q.device)
    blind[[75, 109, 255]] = False
    assert not found.dq[blind].any()


@pytest.mark.emulated("v2", head_dim=[64], mask=["causal"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_no_queries_beside_some_keys(cases: Cases, head_dim: int, mask: str) -> None:
    op = cases.op(layout="thd", head_dim=head_dim, mask=MASKS[mask])
    lengths = ((50, 0, 40), (30, 40, 30)) if cases.small else ((150, 0, 150), (100, 100, 100))
    found = cases.assert_gradients(op, *cases.packed(op, *lengths, 4, 2))
    unseen = slice(lengths[1][0], lengths[1][0] + lengths[1][1])
    assert not found.dk[unseen].any() and not found.dv[unseen].any()
    if not cases.small:
        cases.assert_gradients(op, *cases.packed(op, (50, 40, 10, 0), (0, 60, 0, 0), 4, 2))


@pytest.mark.emulated("v2")
def test_one_query_each_beside_empty_sequences(cases: Cases) -> None:
    op = cases.op(layout="thd", head_dim=64, mask="causal")
    inputs = cases.packed(op, (0, 1, 0, 1), (0, 3, 0, 5), 9, 3)
    assert inputs[5] == 1
    cases.assert_gradients(op, *inputs)


@pytest.mark.emulated("v2", "v3", mask=["causal"])
@pytest.mark.parametrize("mask", MASKS)
def test_rows_of_no_sequence(cases: Cases, mask: str) -> None:
    """Their gradients are 0, whatever memory held, and whatever these rows of q, k, v and dO hold."""
    op = cases.op(layout="thd", head_dim=64, mask=MASKS[mask])
    lengths, unused = ((40, 70), 80) if cases.small else ((100, 200), 212)
    inputs = cases.packed(op, lengths, lengths, 4, 2, unused=unused)
    used = sum(lengths)
    dout = cases.dout(op, *inputs)
    assert all(x[used:].isnan().all() for x in (*inputs[:3], dout))
    for gradient in cases.assert_gradients(op, *inputs, dout=dout):
        assert len(gradient) == used + unused and not gradient[used:].any()


@pytest.mark.emulated("v2")
@pytest.mark.parametrize(("lengths_q", "lengths_k"), [((0, 0), (3, 4)), ((3, 4), (0, 0)), ((0,), (0,))])
def test_no_queries_or_no_keys_at_all(
    cases: Cases, lengths_q: tuple[int, ...], lengths_k: tuple[int, ...]
) -> None:
    op = cases.op(layout="thd", head_dim=64, mask="causal")
    inputs = cases.packed(op, lengths_q, lengths_k, 4, unused=5)
    for gradient in cases.assert_gradients(op, *inputs):
        assert not gradient.any()


@pytest.mark.emulated("v2", head_dim=[64], mask=["window"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    ("dtype", "head_dim", "head_dim_v"),
    [
        ("bf16", 64, 64),
        ("fp16", 72, 40),
        ("fp16", 96, 96),
        ("bf16", 128, 128),
        ("bf16", 192, 128),
        ("fp16", 256, 256),
    ],
)
def test_random_lengths(cases: Cases, dtype: str, head_dim: int, head_dim_v: int, mask: str) -> None:
    op = cases.op(layout="thd", dtype=dtype, head_dim=head_dim, head_dim_v=head_dim_v, mask=MASKS[mask])
    sequences, most = (5, 90) if cases.small else (40, 400)
    for seed in range(1 if cases.small else 3):
        draw = random.Random(seed)

        def lengths(draw: random.Random = draw) -> list[int]:
            return [draw.choice((0, 1, 64, 128, draw.randint(0, most))) for _ in range(sequences)]

        heads = (2, 1) if cases.small else (4, 2)
        cases.assert_gradients(op, *cases.packed(op, lengths(), lengths(), *heads, unused=33, seed=seed))


def test_longest_lengths_may_be_too_large(cases: Cases) -> None:
    op = cases.op(layout="thd", head_dim=64, mask="causal", deterministic=True)
    inputs = cases.packed(op, (40, 7, 90), (33, 70, 64), 2)
    dout = cases.dout(op, *inputs)
    _, expected = cases.gradients(op, *inputs, dout=dout)
    _, found = cases.gradients(op, *inputs[:5], 300, 1000, dout=dout)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_same_numbers_as_a_batch(cases: Cases, mask: str) -> None:
    options = {"head_dim": 64, "mask": mask, "deterministic": True}
    packed, batched = (cases.op(layout=layout, **options) for layout in ("thd", "bshd"))
    sizes = 200, 300
    inputs = cases.inputs(batched, 3, *sizes, 4, 2)
    together = *(x.flatten(0, 1) for x in inputs), *(cases.offsets([n] * 3) for n in sizes), *sizes
    dout = cases.dout(batched, *inputs)
    _, expected = cases.gradients(batched, *inputs, dout=dout)
    _, found = cases.gradients(packed, *together, dout=dout.flatten(0, 1))
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other.flatten(0, 1))


@pytest.mark.emulated("v2")
def test_gradient_through_lse(cases: Cases) -> None:
    op = cases.op(layout="thd", head_dim=64, mask="causal")
    lengths = ((40, 0, 50), (30, 20, 60)) if cases.small else ((200, 0, 333), (100, 50, 400))
    inputs = cases.packed(op, *lengths, 4, 2, unused=3)
    dlse = random_like(op(*inputs, return_lse=True)[1], seed=2)
    cases.assert_gradients(op, *inputs, dlse=dlse)


def test_offsets_that_are_wrong(cases: Cases) -> None:
    op = cases.op(layout="thd", head_dim=64)
    inputs = cases.packed(op, (40, 7, 90), (33, 70, 64), 2)
    leaves, cu_q, rest = tuple(x.clone().requires_grad_() for x in inputs[:3]), inputs[3], inputs[4:]
    for wrong in (cu_q.long(), cu_q.cpu(), cu_q.unsqueeze(0), cu_q.repeat_interleave(2)[::2], cu_q[:-1]):
        given: tuple[Any, ...] = (*leaves, wrong, *rest)
        with pytest.raises(ArgumentError, match=r"^cu_seqlens_"):
            op(*given)
    cases.assert_gradients(op, *inputs)
