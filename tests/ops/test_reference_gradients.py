"""The gradients of the reference against formulas, and their tolerance against its wording."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fagen.ops import reference, reference_gradients
from fagen.ops.reference_gradients import gradients, plain_gradients
from fagen.spec.model import Problem, Window


def problem(**changed: Any) -> Problem:
    return Problem(**({"dtype": "fp16", "head_dim": 8, "head_dim_v": 16, "layout": "bhsd"} | changed))


def tensors(
    batch: int, seqlen_q: int, seqlen_k: int, heads_q: int, heads_kv: int
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor, Tensor]:
    """(q, k, v), dout and dlse in layout bhsd."""
    generator = torch.Generator().manual_seed(0)

    def tensor(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator).half()

    q, k, v, dout = (
        tensor(batch, heads, length, dim)
        for heads, length, dim in (
            (heads_q, seqlen_q, 8),
            (heads_kv, seqlen_k, 8),
            (heads_kv, seqlen_k, 16),
            (heads_q, seqlen_q, 16),
        )
    )
    return (q, k, v), dout, tensor(batch, heads_q, seqlen_q).float()


def by_formula(problem: Problem, q: Tensor, k: Tensor, v: Tensor, dout: Tensor, dlse: Tensor) -> list[Tensor]:
    """dS = P * (dP - rowsum(dO * O) + dLSE), in fp64; bhsd."""
    group = q.shape[1] // k.shape[1]
    q, k, v, dout, dlse = (x.double() for x in (q, k, v, dout, dlse))
    wide_k, wide_v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scale = problem.head_dim**-0.5
    seen = reference.visible(problem, q.shape[2], k.shape[2])
    weights = torch.where(seen, (scale * q @ wide_k.mT).exp(), 0.0)
    p = weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)
    delta = (dout * (p @ wide_v)).sum(-1) - dlse
    ds = scale * p * (dout @ wide_v.mT - delta.unsqueeze(-1))
    wide = ds.mT @ q, p.mT @ dout
    return [ds @ wide_k, *(x.unflatten(1, (-1, group)).sum(2) for x in wide)]


@pytest.mark.parametrize("mask", ["none", "causal", Window(window=(2, 1))], ids=str)
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(5, 5), (6, 2), (2, 6), (1, 1), (3, 0), (0, 3)])
def test_gradients_are_those_of_the_formulas(mask: Any, seqlen_q: int, seqlen_k: int) -> None:
    own = problem(mask=mask)
    inputs, dout, dlse = tensors(2, seqlen_q, seqlen_k, 6, 2)
    found = gradients(own, *inputs, dout=dout, dlse=dlse)
    plain = plain_gradients(own, *inputs, dout=dout, dlse=dlse)
    for one, near, exact, x in zip(found, plain, by_formula(own, *inputs, dout, dlse), inputs, strict=True):
        torch.testing.assert_close(one, exact, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(near.double(), exact, rtol=0, atol=2e-2)
        assert near.dtype == x.dtype and near.shape == x.shape


def test_no_gradient_through_lse_is_one_of_zeros() -> None:
    inputs, dout, dlse = tensors(1, 5, 7, 2, 1)
    own = problem(mask="causal")
    without = gradients(own, *inputs, dout=dout)
    for one, other in zip(gradients(own, *inputs, dout=dout, dlse=0 * dlse), without, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("scores", [1, 40, 200])
def test_parts_are_the_whole(monkeypatch: pytest.MonkeyPatch, scores: int) -> None:
    inputs, dout, dlse = tensors(3, 5, 4, 4, 2)
    whole = gradients(problem(), *inputs, dout=dout, dlse=dlse)
    monkeypatch.setattr(reference_gradients, "SCORES_AT_ONCE", scores)
    for one, other in zip(gradients(problem(), *inputs, dout=dout, dlse=dlse), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_layouts_agree() -> None:
    inputs, dout, dlse = tensors(2, 7, 9, 4, 2)
    expected = gradients(problem(), *inputs, dout=dout, dlse=dlse)
    swapped = (x.transpose(1, 2) for x in inputs)
    found = gradients(problem(layout="bshd"), *swapped, dout=dout.transpose(1, 2), dlse=dlse)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.transpose(1, 2), other)


def test_packed_sequences_are_each_attention() -> None:
    """Of lengths 5, 0, 2 and 3, keys 3, 4, 0 and 6, and then rows of no sequence, which hold NaN."""
    lengths = ((5, 3), (0, 4), (2, 0), (3, 6))
    own = problem(mask="causal", layout="thd")
    inputs, dout, dlse = tensors(1, 12, 15, 6, 2)
    q, k, v, dout = (x[0].transpose(0, 1) for x in (*inputs, dout))
    for x, used in ((q, 10), (k, 13), (v, 13), (dout, 10)):
        x[used:] = math.nan
    cu_q, cu_k = torch.tensor([0, 5, 5, 7, 10]), torch.tensor([0, 3, 7, 7, 13])
    found = gradients(own, q, k, v, cu_q, cu_k, dout=dout, dlse=dlse[0])
    for i, (seqlen_q, seqlen_k) in enumerate(lengths):
        rows, keys = (slice(at[i], at[i] + n) for at, n in ((cu_q, seqlen_q), (cu_k, seqlen_k)))
        one = [x[at].unsqueeze(0).transpose(1, 2) for x, at in ((q, rows), (k, keys), (v, keys))]
        own_dout = dout[rows].unsqueeze(0).transpose(1, 2)
        expected = gradients(problem(mask="causal"), *one, dout=own_dout, dlse=dlse[:, :, rows])
        for whole, at, gradient in zip(found, (rows, keys, keys), expected, strict=True):
            assert torch.equal(whole[at], gradient[0].transpose(0, 1))
    assert not found.dq[10:].any() and not found.dk[13:].any() and not found.dv[13:].any()


@pytest.mark.parametrize(("dtype", "rounding"), [("fp16", 1e-4), ("bf16", 4e-4)])
def test_allowed_error_is_three_times_plain_plus_ten_roundings(dtype: str, rounding: float) -> None:
    exact = torch.tensor([0.5, -3.0, 0.0], dtype=torch.float64)
    plain = torch.tensor([0.5, -2.75, 0.0])
    allowed = reference.allowed_gradient_error(problem(dtype=dtype), plain, exact)
    assert allowed == pytest.approx(3 * 0.25 + 10 * rounding * 3.0)
    allowed = reference.allowed_gradient_error(problem(dtype=dtype), exact / 8, exact / 8)
    assert allowed == pytest.approx(10 * rounding)
    assert reference.allowed_gradient_error(problem(dtype=dtype), exact[:0], exact[:0]) == 0
