"""Gradients at shapes and sizes: empty, odd, unequal, and beyond 16, 31 and 32 bits."""

from __future__ import annotations

import random
from itertools import product

import pytest
import torch
from gpu_cases import Cases
from torch.nn.functional import cosine_similarity

from fagen.ops.reference_gradients import gradients

THD = pytest.param("thd", marks=pytest.mark.family("v2", "v3"))
LENGTHS = (1, 2, 7, 8, 63, 64, 65, 127, 128, 129, 257, 1023)
EMULATED_LENGTHS = (1, 32, 65)
GIB = 2**30


@pytest.mark.emulated("v1", "v2")
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(128, 0), (0, 128), (0, 0)])
def test_no_queries_or_no_keys(cases: Cases, mask: str, seqlen_q: int, seqlen_k: int) -> None:
    op = cases.op(head_dim=64, mask=mask)
    inputs = cases.inputs(op, 2, seqlen_q, seqlen_k, 4)
    for x, gradient in zip(inputs, cases.assert_gradients(op, *inputs), strict=True):
        assert gradient.shape == x.shape and not gradient.any()


@pytest.mark.emulated("v1", "v2", head_dim=[64], dtype=["bf16"])
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_lengths_that_are_no_multiple_of_the_tile(cases: Cases, dtype: str, head_dim: int, mask: str) -> None:
    op = cases.op(dtype=dtype, head_dim=head_dim, mask=mask)
    lengths, (batch, heads) = (EMULATED_LENGTHS, (1, 2)) if cases.small else (LENGTHS, (3, 3))
    for seqlen_q, seqlen_k in product(lengths, lengths):
        cases.assert_gradients(op, *cases.inputs(op, batch, seqlen_q, seqlen_k, heads))


@pytest.mark.emulated("v1", "v2", head_dim=[8, 72], dtype=["fp16"])
@pytest.mark.parametrize(("dtype", "mask"), [("bf16", "none"), ("fp16", "causal")])
@pytest.mark.parametrize("head_dim", [8, 16, 40, 64, 72, 80, 88, 96, 112, 128, 160, 192, 200, 256])
def test_head_dims(cases: Cases, head_dim: int, dtype: str, mask: str) -> None:
    op = cases.op(dtype=dtype, head_dim=head_dim, mask=mask)
    batch, length, heads = (1, 70, 1) if cases.small else (2, 200, 2)
    cases.assert_gradients(op, *cases.inputs(op, batch, length, length, heads))


@pytest.mark.emulated("v1", "v2", head_dim_v=[24])
@pytest.mark.parametrize(("head_dim", "head_dim_v"), [(192, 128), (64, 256), (40, 24), (128, 96), (64, 160)])
def test_head_dim_v(cases: Cases, head_dim: int, head_dim_v: int) -> None:
    op = cases.op(head_dim=head_dim, head_dim_v=head_dim_v)
    sizes = (1, 40, 70, 2, 1) if cases.small else (2, 200, 333, 4, 2)
    cases.assert_gradients(op, *cases.inputs(op, *sizes))


@pytest.mark.parametrize("seqlen", [512, 2048])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_a_sequence_of_head_dim_256_does_not_depend_on_the_batch(
    cases: Cases, batch: int, seqlen: int
) -> None:
    op = cases.op(head_dim=256, deterministic=True)
    inputs = cases.inputs(op, batch, seqlen, seqlen, 16, 2)
    dout = cases.dout(op, *inputs)
    found = cases.assert_gradients(op, *inputs, dout=dout)
    exact = gradients(op.spec.problem, *inputs, dout=dout)
    assert cosine_similarity(found.dq.double().flatten(), exact.dq.flatten(), dim=0) >= 0.999
    _, alone = cases.gradients(op, *(x[:1] for x in inputs), dout=dout[:1])
    for whole, one in zip(found, alone, strict=True):
        assert torch.equal(whole[:1], one)


def some_of(batch: int, count: int) -> list[int]:
    """The first, the last and random entries."""
    return sorted({0, batch - 1, *random.Random(0).sample(range(batch), count)})


@pytest.mark.parametrize("layout", ["bshd", THD])
@pytest.mark.parametrize(("batch", "seqlen", "heads"), [(65535, 4, 8), (65536, 4, 8), (70000, 1, 1)])
def test_batch_above_65535(cases: Cases, batch: int, seqlen: int, heads: int, layout: str) -> None:
    op = cases.op(dtype="fp16", head_dim=64, mask="causal", layout=layout)
    inputs = cases.inputs(op, batch, seqlen, seqlen, heads)
    cases.assert_gradients(op, *inputs, entries=some_of(batch, 50))


@pytest.mark.alone
@pytest.mark.parametrize("layout", ["bshd", THD])
@pytest.mark.parametrize(("batch", "seqlen", "heads", "head_dim"), [(8300, 1, 16, 128), (28800, 15, 16, 72)])
def test_many_short_sequences(
    cases: Cases, batch: int, seqlen: int, heads: int, head_dim: int, layout: str
) -> None:
    """Whole tiles of working memory for each."""
    op = cases.op(head_dim=head_dim, layout=layout)
    inputs = cases.inputs(op, batch, seqlen, seqlen, heads)
    cases.assert_gradients(op, *inputs, entries=some_of(batch, 100))
    del inputs
    torch.cuda.empty_cache()


@pytest.mark.alone
@pytest.mark.parametrize("layout", ["bshd", THD])
def test_tensors_above_2_31_elements(cases: Cases, layout: str) -> None:
    if torch.cuda.mem_get_info()[0] < 90 * GIB:
        pytest.skip("needs 90 GiB of free GPU memory")
    op = cases.op(layout=layout)
    inputs = cases.inputs(op, 9000, 128, 128, 16)
    cases.assert_gradients(op, *inputs, entries=(0, 8191, 8192, 8999))
    del inputs
    torch.cuda.empty_cache()


@pytest.mark.alone
def test_rows_beyond_2_31_elements(cases: Cases) -> None:
    """One sequence whose last rows lie more than 2^31 elements behind its first.

    Only its last queries have a gradient, which the reference then takes by themselves.
    """
    if torch.cuda.mem_get_info()[0] < 12 * GIB:
        pytest.skip("needs 12 GiB of free GPU memory")
    op, seqlen, some = cases.op(), 132_000, 64
    wide = torch.randn((1, seqlen, 128, 128), dtype=torch.bfloat16, device=cases.device)
    assert wide.stride(1) * (seqlen - 1) > 2**31
    q, k, v = (wide[:, :, head : head + 1] for head in (0, 64, 127))
    dout = cases.dout(op, q, k, v)
    dout[:, :-some] = 0
    _, found = cases.gradients(op, q, k, v, dout=dout)
    assert not found.dq[:, :-some].any()
    last = found._replace(dq=found.dq[:, -some:])  # causal is aligned to the end
    cases.assert_near(op, (q[:, -some:], k, v), last, dout=dout[:, -some:])
    del wide, q, k, v
    torch.cuda.empty_cache()


@pytest.mark.emulated
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(3, 128), (2, 5), (5, 2), (100, 300), (300, 100)])
def test_causal_is_aligned_to_the_bottom_right(cases: Cases, seqlen_q: int, seqlen_k: int) -> None:
    op = cases.op(head_dim=64, mask="causal")
    if cases.small:
        seqlen_q, seqlen_k = min(seqlen_q, 110), min(seqlen_k, 110)
    found = cases.assert_gradients(op, *cases.inputs(op, 1, seqlen_q, seqlen_k, 2))
    assert not found.dq[:, : max(0, seqlen_q - seqlen_k)].any(), "of queries that see no key"
