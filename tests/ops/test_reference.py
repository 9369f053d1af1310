"""The reference against other ways to write attention, and the tolerance rule against its wording."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fagen.ops import reference
from fagen.spec.model import Problem, Window


def problem(**changed: Any) -> Problem:
    return Problem(**({"dtype": "fp16", "head_dim": 8} | changed))


def qkv(
    batch: int, seqlen_q: int, seqlen_k: int, heads_q: int, heads_kv: int, dim: int = 8, dim_v: int = 8
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def tensor(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator).half()

    return (
        tensor(batch, seqlen_q, heads_q, dim),
        tensor(batch, seqlen_k, heads_kv, dim),
        tensor(batch, seqlen_k, heads_kv, dim_v),
    )


def by_loops(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: tuple[float, float],
    scale: float,
    cap: float | None = None,
    factors: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of BSHD tensors in Python floats, one query at a time; P times factors [b, h, i, j]."""
    (batch, seqlen_q, heads_q, _), (seqlen_k, heads_kv, dim_v) = q.shape, v.shape[1:]
    out = torch.zeros(batch, seqlen_q, heads_q, dim_v, dtype=torch.float64)
    lse = torch.full((batch, heads_q, seqlen_q), -math.inf, dtype=torch.float64)
    q, k, v = q.double(), k.double(), v.double()
    for b in range(batch):
        for h in range(heads_q):
            kv = h // (heads_q // heads_kv)
            for i in range(seqlen_q):
                place = i + seqlen_k - seqlen_q
                keys = [j for j in range(seqlen_k) if place - window[0] <= j <= place + window[1]]
                scores = [scale * torch.dot(q[b, i, h], k[b, j, kv]).item() for j in keys]
                weights = [math.exp(x if cap is None else cap * math.tanh(x / cap)) for x in scores]
                if keys:
                    lse[b, h, i] = math.log(sum(weights))
                for j, weight in zip(keys, weights, strict=True):
                    factor = 1.0 if factors is None else factors[b, h, i, j]
                    out[b, i, h] += factor * weight / sum(weights) * v[b, j, kv]
    return out, lse


WINDOWS: list[tuple[Any, tuple[float, float]]] = [  # a mask, and keys seen before and after a query's place
    ("none", (math.inf, math.inf)),
    ("causal", (math.inf, 0)),
    (Window(window=(None, None)), (math.inf, math.inf)),
    (Window(window=(1, None)), (1, math.inf)),
    (Window(window=(None, 2)), (math.inf, 2)),
    (Window(window=(2, 1)), (2, 1)),
    (Window(window=(0, 0)), (0, 0)),
    (Window(window=(4, 0)), (4, 0)),  # S-1 of some
]


@pytest.mark.parametrize(("mask", "window"), WINDOWS, ids=str)
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(5, 5), (5, 2), (2, 5), (1, 1), (3, 0), (0, 3)])
def test_is_attention_one_query_at_a_time(
    mask: Any, window: tuple[float, float], seqlen_q: int, seqlen_k: int
) -> None:
    inputs = qkv(2, seqlen_q, seqlen_k, 6, 2, dim_v=16)
    out, lse = reference.attention(problem(mask=mask, head_dim_v=16), *inputs, scale=0.3)
    expected, expected_lse = by_loops(*inputs, window=window, scale=0.3)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("mask", "window"), WINDOWS[:2], ids=str)
def test_soft_cap_and_dropout(mask: Any, window: tuple[float, float]) -> None:
    """The cap comes before the mask; LSE is that without dropout."""
    inputs = qkv(2, 5, 7, 6, 2)
    kept = torch.rand(2, 6, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.7
    capped = problem(mask=mask, softcap=0.5, dropout=True)
    found = reference.attention(capped, *inputs, dropout_p=0.3, kept=kept)
    plain = reference.plain_attention(capped, *inputs, dropout_p=0.3, kept=kept)
    expected = by_loops(*inputs, window=window, scale=8**-0.5, cap=0.5, factors=kept.double() / (1 - 0.3))
    for exact, eager, right in zip(found, plain, expected, strict=True):
        torch.testing.assert_close(exact, right, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(eager.double(), right, rtol=0, atol=5e-3)


@pytest.mark.parametrize("mask", ["none", "causal", Window(window=(2, 1))], ids=str)
def test_packed_sequences_are_each_attention(mask: Any) -> None:
    """Of lengths 5, 0, 2 and 3, keys 3, 4, 0 and 6, and then rows of no sequence."""
    cu_q, cu_k = torch.tensor([0, 5, 5, 7, 10]), torch.tensor([0, 3, 7, 7, 13])
    q, k, v = (x[0] for x in qkv(1, 12, 15, 6, 2, dim_v=16))
    packed = problem(mask=mask, head_dim_v=16, layout="thd")
    out, lse = reference.attention(packed, q, k, v, cu_q, cu_k)
    plain, plain_lse = reference.plain_attention(packed, q, k, v, cu_q, cu_k)
    assert out.shape == plain.shape == (12, 6, 16) and lse.shape == plain_lse.shape == (6, 12)
    for (q0, q1), (k0, k1) in zip(pairwise(cu_q.tolist()), pairwise(cu_k.tolist()), strict=True):
        one = (q[None, q0:q1], k[None, k0:k1], v[None, k0:k1])
        own_out, own_lse = reference.attention(problem(mask=mask, head_dim_v=16), *one)
        assert torch.equal(out[q0:q1], own_out[0]) and torch.equal(lse[:, q0:q1], own_lse[0])
        own_plain, own_lse = reference.plain_attention(problem(mask=mask, head_dim_v=16), *one)
        assert torch.equal(plain[q0:q1], own_plain[0]) and torch.equal(plain_lse[:, q0:q1], own_lse[0])
    assert not out[10:].any() and not plain[10:].any() and torch.all(lse[:, 10:] == -math.inf)


def test_agrees_with_torch_and_its_default_scale() -> None:
    q, k, v = qkv(2, 33, 33, 4, 4)
    out, _ = reference.attention(problem(mask="causal"), q, k, v)
    q_head, k_head, v_head = (x.double().transpose(1, 2) for x in (q, k, v))
    expected = scaled_dot_product_attention(q_head, k_head, v_head, is_causal=True).transpose(1, 2)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


def test_layouts_agree() -> None:
    q, k, v = qkv(2, 7, 9, 4, 2)
    out, lse = reference.attention(problem(), q, k, v)
    swapped = (x.transpose(1, 2) for x in (q, k, v))
    out_swapped, lse_swapped = reference.attention(problem(layout="bhsd"), *swapped)
    assert torch.equal(out, out_swapped.transpose(1, 2))
    assert torch.equal(lse, lse_swapped)


def test_causal_is_aligned_to_the_bottom_right() -> None:
    seen = reference.visible(problem(mask="causal"), 2, 5)
    assert seen.tolist() == [[True] * 4 + [False], [True] * 5]
    seen = reference.visible(problem(mask="causal"), 3, 1)
    assert seen.tolist() == [[False], [False], [True]]


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(64, 64), (64, 3), (4, 0)])
def test_plain_attention_is_near_and_rounded(mask: str, seqlen_q: int, seqlen_k: int) -> None:
    inputs = qkv(1, seqlen_q, seqlen_k, 2, 2)
    exact, exact_lse = reference.attention(problem(mask=mask), *inputs)
    plain, plain_lse = reference.plain_attention(problem(mask=mask), *inputs)
    assert plain.dtype == torch.float16 and plain_lse.dtype == torch.float32
    torch.testing.assert_close(plain_lse.double(), exact_lse, rtol=0, atol=5e-3)
    torch.testing.assert_close(plain.double(), exact, rtol=0, atol=5e-3)
    assert (seqlen_k == 0) == torch.equal(plain.double(), exact)


@pytest.mark.parametrize(("dtype", "rounding"), [("fp16", 1e-4), ("bf16", 4e-4)])
def test_allowed_error_is_twice_plain_plus_rounding(dtype: str, rounding: float) -> None:
    exact = torch.tensor([0.5, -3.0, 0.0], dtype=torch.float64)
    plain = torch.tensor([0.5, -2.75, 0.0])
    allowed = reference.allowed_error(problem(dtype=dtype), plain, exact)
    assert allowed == pytest.approx(2 * 0.25 + rounding * 3.0)
    allowed = reference.allowed_error(problem(dtype=dtype), exact / 8, exact / 8)
    assert allowed == pytest.approx(rounding), "small values are not held to a smaller error"
