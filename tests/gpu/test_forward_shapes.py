"""Shapes and sizes: empty, odd, unequal, grouped, and beyond 16, 31 and 32 bits."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest
import torch
from gpu_cases import Cases

from fagen.errors import ArgumentError

THD = pytest.param("thd", marks=pytest.mark.family("v2", "v3"))
LENGTHS = (1, 2, 7, 8, 63, 64, 65, 127, 128, 129, 257, 1023)
EMULATED_LENGTHS = (1, 32, 33, 65)
GIB = 2**30


@pytest.mark.emulated
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(128, 0), (0, 128), (0, 0)])
def test_no_queries_or_no_keys(cases: Cases, mask: str, seqlen_q: int, seqlen_k: int) -> None:
    op = cases.op(head_dim=64, mask=mask)
    out, lse = cases.run(op, *cases.inputs(op, 2, seqlen_q, seqlen_k, 4))
    assert out.shape == (2, seqlen_q, 4, 64) and torch.all(out == 0)
    assert lse.shape == (2, 4, seqlen_q) and torch.all(lse == -math.inf)


@pytest.mark.emulated(head_dim=[64], dtype=["bf16"])
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_lengths_that_are_no_multiple_of_the_tile(cases: Cases, dtype: str, head_dim: int, mask: str) -> None:
    op = cases.op(dtype=dtype, head_dim=head_dim, mask=mask)
    lengths, heads = (EMULATED_LENGTHS, 1) if cases.small else (LENGTHS, 3)
    for seqlen_q, seqlen_k in product(lengths, lengths):
        cases.assert_right(op, *cases.inputs(op, 3, seqlen_q, seqlen_k, heads))


@pytest.mark.emulated(head_dim=[8, 72])
@pytest.mark.parametrize(("dtype", "mask"), [("bf16", "none"), ("fp16", "causal")])
@pytest.mark.parametrize("head_dim", [8, 16, 40, 64, 72, 80, 88, 96, 112, 128, 160, 192, 200, 256])
def test_head_dims(cases: Cases, head_dim: int, dtype: str, mask: str) -> None:
    op = cases.op(dtype=dtype, head_dim=head_dim, mask=mask)
    length = 70 if cases.small else 200
    q, k, v = cases.inputs(op, 2, length, length, 2)
    cases.assert_right(op, q, k, v)
    changed = q.clone()
    changed[..., -1] += 4
    assert not torch.equal(op(changed, k, v), op(q, k, v)), "the last channel counts"


@pytest.mark.emulated(head_dim_v=[24])
@pytest.mark.parametrize(("head_dim", "head_dim_v"), [(192, 128), (64, 256), (40, 24), (128, 96), (64, 160)])
def test_head_dim_v(cases: Cases, head_dim: int, head_dim_v: int) -> None:
    op = cases.op(head_dim=head_dim, head_dim_v=head_dim_v)
    lengths = (40, 70) if cases.small else (200, 333)
    cases.assert_right(op, *cases.inputs(op, 2, *lengths, 4, 2))


def some_of(batch: int, count: int) -> list[int]:
    """The first, the last and random entries."""
    return sorted({0, batch - 1, *random.Random(0).sample(range(batch), count)})


@pytest.mark.parametrize("layout", ["bshd", THD])
@pytest.mark.parametrize(("batch", "seqlen", "heads"), [(65535, 4, 8), (65536, 4, 8), (70000, 1, 1)])
def test_batch_above_65535(cases: Cases, batch: int, seqlen: int, heads: int, layout: str) -> None:
    op = cases.op(dtype="fp16", head_dim=64, mask="causal", layout=layout)
    inputs = cases.inputs(op, batch, seqlen, seqlen, heads)
    cases.assert_right(op, *inputs, entries=some_of(batch, 50))


@pytest.mark.parametrize(("batch", "seqlen", "heads", "head_dim"), [(8300, 1, 16, 128), (28800, 15, 16, 72)])
def test_many_short_sequences(cases: Cases, batch: int, seqlen: int, heads: int, head_dim: int) -> None:
    op = cases.op(head_dim=head_dim)
    inputs = cases.inputs(op, batch, seqlen, seqlen, heads)
    cases.assert_right(op, *inputs, entries=some_of(batch, 100))


@pytest.mark.alone
@pytest.mark.parametrize("layout", ["bshd", THD])
def test_tensors_above_2_31_elements(cases: Cases, layout: str) -> None:
    if torch.cuda.mem_get_info()[0] < 60 * GIB:
        pytest.skip("needs 60 GiB of free GPU memory")
    op = cases.op(layout=layout)
    inputs = cases.inputs(op, 9000, 128, 128, 16)
    cases.assert_right(op, *inputs, entries=(0, 8191, 8192, 8999))
    del inputs
    torch.cuda.empty_cache()


@pytest.mark.alone
def test_rows_beyond_2_31_elements(cases: Cases) -> None:
    """One sequence whose last rows lie more than 2^31 elements behind its first."""
    if torch.cuda.mem_get_info()[0] < 12 * GIB:
        pytest.skip("needs 12 GiB of free GPU memory")
    op, seqlen = cases.op(), 132_000
    wide = torch.randn((1, seqlen, 128, 128), dtype=torch.bfloat16, device=cases.device)
    assert wide.stride(1) * (seqlen - 1) > 2**31
    q, k, v = (wide[:, :, head : head + 1] for head in (0, 64, 127))
    out, lse = cases.run(op, q, k, v)
    last = q[:, -64:]  # causal is aligned to the end
    cases.assert_result(op, (last, k, v), (out[:, -64:].contiguous(), lse[:, :, -64:]))
    del wide, q, k, v, last
    torch.cuda.empty_cache()


@pytest.mark.emulated
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(3, 128), (2, 5), (5, 2), (100, 300), (300, 100)])
def test_causal_is_aligned_to_the_bottom_right(cases: Cases, seqlen_q: int, seqlen_k: int) -> None:
    op = cases.op(head_dim=64, mask="causal")
    q, k, v = cases.inputs(op, 2, seqlen_q, seqlen_k, 2)
    out, lse = result = cases.run(op, q, k, v)
    cases.assert_result(op, (q, k, v), result)
    unseeing = max(0, seqlen_q - seqlen_k)
    assert torch.all(out[:, :unseeing] == 0) and torch.all(lse[:, :, :unseeing] == -math.inf)
    assert torch.all(lse[:, :, unseeing:].isfinite())


@pytest.mark.emulated(heads_q=[6, 5, 14])
@pytest.mark.parametrize(("heads_q", "heads_kv"), [(6, 2), (14, 2), (5, 1), (40, 8), (21, 7), (12, 3)])
@pytest.mark.parametrize("seqlen_q", [130, 1])
def test_grouped_heads(cases: Cases, seqlen_q: int, heads_q: int, heads_kv: int) -> None:
    op = cases.op(head_dim=64, mask="causal")
    seqlen_q, seqlen_k = (min(seqlen_q, 40), 70) if cases.small else (seqlen_q, 130)
    q, k, v = cases.inputs(op, 2, seqlen_q, seqlen_k, heads_q, heads_kv)
    out = cases.assert_right(op, q, k, v)
    expanded = (x.repeat_interleave(heads_q // heads_kv, dim=2) for x in (k, v))
    assert torch.equal(out, op(q, *expanded)), "query head h uses K/V head h // (heads_q / heads_kv)"


@pytest.mark.parametrize("seqlen", [512, 2048])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_a_sequence_of_head_dim_256_does_not_depend_on_the_batch(
    cases: Cases, batch: int, seqlen: int
) -> None:
    op = cases.op(head_dim=256)
    inputs = cases.inputs(op, batch, seqlen, seqlen, 16, 2)
    out = cases.assert_right(op, *inputs)
    assert torch.equal(out[:1], op(*(x[:1] for x in inputs)))


@pytest.mark.emulated
def test_heads_that_do_not_divide(cases: Cases) -> None:
    op = cases.op(head_dim=64, mask="causal")
    q, k, v = cases.inputs(op, 2, 130, 130, 7, 2)
    with pytest.raises(ArgumentError, match="heads is 2; allowed: a divisor of q's 7 heads"):
        op(q, k, v)
    cases.assert_right(op, *cases.inputs(op, 2, 130, 130, 6, 2))
