"""Packed sequences (layout thd): lengths of every kind, rows of no sequence, offsets that are wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gpu_cases import Cases
from torch import Tensor

from fagen.errors import ArgumentError
from fagen.ops import reference
from fagen.ops.metadata import CHECK_METADATA

pytestmark = pytest.mark.family("v2", "v3")

MASKS: dict[str, Any] = {"none": "none", "causal": "causal", "window": {"window": [100, 30]}}


@pytest.mark.emulated
def test_more_queries_than_keys(cases: Cases) -> None:
    op = cases.op(layout="thd", dtype="fp16", head_dim=32, mask="causal")
    q, k, v, *packing = cases.packed(op, (76, 34, 146), (1, 1, 1), 1)
    inputs = (*(3 * x for x in (q, k, v)), *packing)
    out, lse = result = cases.run(op, *inputs)
    cases.assert_result(op, inputs, result)
    seeing = torch.tensor([75, 109, 255], device=out.device)
    blind = torch.ones(256, dtype=torch.bool, device=out.device).index_fill(0, seeing, False)
    assert torch.all(out[blind] == 0) and torch.all(lse[:, blind] == -math.inf)
    assert torch.equal(out[seeing], inputs[2]), "one key each"


@pytest.mark.emulated(head_dim=[64])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_no_queries_beside_some_keys(cases: Cases, head_dim: int, mask: str) -> None:
    op = cases.op(layout="thd", head_dim=head_dim, mask=MASKS[mask])
    cases.assert_right(op, *cases.packed(op, (150, 0, 150), (100, 100, 100), 4, 2))
    cases.assert_right(op, *cases.packed(op, (50, 40, 10, 0), (0, 60, 0, 0), 4, 2))


@pytest.mark.emulated
def test_one_query_each_beside_empty_sequences(cases: Cases) -> None:
    op = cases.op(layout="thd", head_dim=64, mask="causal")
    inputs = cases.packed(op, (0, 1, 0, 1), (0, 3, 0, 5), 9, 3)
    assert inputs[5] == 1
    cases.assert_right(op, *inputs)


@pytest.mark.emulated(mask=["causal"])
@pytest.mark.parametrize("mask", MASKS)
def test_rows_of_no_sequence(cases: Cases, mask: str) -> None:
    """They are 0 and -inf, whatever memory held, and whatever these rows of q, k and v hold."""
    op = cases.op(layout="thd", head_dim=64, mask=MASKS[mask])
    inputs = cases.packed(op, (100, 200), (100, 200), 4, 2, unused=212)
    assert len(inputs[0]) == 512 and inputs[0][300:].isnan().all()
    out, lse = result = cases.run(op, *inputs)
    cases.assert_result(op, inputs, result)
    assert torch.all(out[300:] == 0) and torch.all(lse[:, 300:] == -math.inf)


@pytest.mark.emulated
@pytest.mark.parametrize(("lengths_q", "lengths_k"), [((0, 0), (3, 4)), ((3, 4), (0, 0)), ((0,), (0,))])
def test_no_queries_or_no_keys_at_all(
    cases: Cases, lengths_q: tuple[int, ...], lengths_k: tuple[int, ...]
) -> None:
    op = cases.op(layout="thd", head_dim=64, mask="causal")
    out, lse = cases.run(op, *cases.packed(op, lengths_q, lengths_k, 4, unused=5))
    assert out.shape == (sum(lengths_q) + 5, 4, 64) and torch.all(out == 0)
    assert lse.shape == (4, sum(lengths_q) + 5) and torch.all(lse == -math.inf)


@pytest.mark.emulated(head_dim=[64], mask=["none", "window"])
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

        cases.assert_right(op, *cases.packed(op, lengths(), lengths(), 4, 2, unused=33, seed=seed))


@pytest.mark.emulated
def test_longest_lengths_may_be_too_large(cases: Cases) -> None:
    op = cases.op(layout="thd", head_dim=64, mask="causal")
    inputs = cases.packed(op, (40, 7, 90), (33, 70, 64), 2)
    larger: tuple[Any, ...] = (*inputs[:5], 300, 1000)
    assert torch.equal(op(*larger), op(*inputs))


@pytest.mark.emulated
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_same_numbers_as_a_batch(cases: Cases, mask: str) -> None:
    packed, batched = (cases.op(layout=layout, head_dim=64, mask=mask) for layout in ("thd", "bshd"))
    sizes = (40, 70) if cases.small else (200, 300)
    inputs = cases.inputs(batched, 3, *sizes, 4, 2)
    together = *(x.flatten(0, 1) for x in inputs), *(cases.offsets([n] * 3) for n in sizes), *sizes
    (out, lse), (packed_out, packed_lse) = cases.run(batched, *inputs), cases.run(packed, *together)
    assert torch.equal(packed_out, out.flatten(0, 1))
    assert torch.equal(packed_lse, lse.transpose(0, 1).flatten(1))


@pytest.mark.emulated
@pytest.mark.parametrize("seqlen_q", [1, 77])
def test_lse_is_fp32_and_natural(cases: Cases, seqlen_q: int) -> None:
    op = cases.op(layout="thd", head_dim=64, mask="causal")
    inputs = cases.inputs(op, 2, seqlen_q, 200 if cases.small else 1000, 8, 2)
    _, lse = cases.run(op, *inputs)
    _, exact = reference.attention(op.spec.problem, *inputs[:5])
    assert lse.dtype == torch.float32 and lse.shape == (8, 2 * seqlen_q)
    torch.testing.assert_close(lse.double(), exact, rtol=0.0, atol=1e-3)


@pytest.mark.emulated
def test_slices_of_one_fused_tensor(cases: Cases) -> None:
    op = cases.op(layout="thd", head_dim=64)
    lengths = (25, 65) if cases.small else (700, 0, 1200, 148)
    fused = torch.randn((sum(lengths), 18, 64), dtype=torch.bfloat16, device=cases.device)
    packing: tuple[Any, ...] = *(cases.offsets(lengths),) * 2, *(max(lengths),) * 2
    views = fused[:, :16], fused[:, 16:17], fused[:, 17:]
    out = cases.assert_right(op, *views, *packing)
    copies: tuple[Any, ...] = tuple(x.contiguous() for x in views) + packing
    assert torch.equal(op(*copies), out)


WRONG: dict[str, tuple[int, Callable[[Any], Any], str]] = {
    "int64": (3, Tensor.long, r"^cu_seqlens_q: is torch\.int64; allowed: torch\.int32"),
    "on the CPU": (4, Tensor.cpu, r"^cu_seqlens_k: is on cpu; allowed: cuda:0, as q"),
    "2-D": (3, lambda x: x.unsqueeze(0), r"^cu_seqlens_q: has shape \(1, 4\); allowed: 1 dimension"),
    "with a stride": (
        4,
        lambda x: x.repeat_interleave(2)[::2],
        r"^cu_seqlens_k: has stride 2; allowed: cont",
    ),
    "one short": (4, lambda x: x[:-1], r"^cu_seqlens_k: has 3 offsets; allowed: 4, as cu_seqlens_q"),
    "a length on the GPU": (
        5,
        lambda x: torch.tensor(x).cuda(),
        r"^max_seqlen_q: is a Tensor; allowed: a Pyth",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_offsets_that_are_wrong(cases: Cases, wrong: str) -> None:
    op = cases.op(layout="thd", head_dim=64)
    inputs = list(cases.packed(op, (40, 7, 90), (33, 70, 64), 2))
    right, (which, change, message) = tuple(inputs), WRONG[wrong]
    inputs[which] = change(inputs[which])
    with pytest.raises(ArgumentError, match=message):
        op(*inputs)
    cases.assert_right(op, *right)


def test_values_of_offsets_that_are_wrong(cases: Cases, monkeypatch: pytest.MonkeyPatch) -> None:
    op = cases.op(layout="thd", head_dim=64)
    inputs = cases.packed(op, (40, 7, 90), (33, 70, 64), 2)
    monkeypatch.setenv(CHECK_METADATA, "1")
    inputs[3][2] = 20
    with pytest.raises(ArgumentError, match="cu_seqlens_q: falls from 40 to 20 at sequence 1"):
        op(*inputs)
    inputs[3][2] = 47
    cases.assert_right(op, *inputs)
