"""Values: huge scores, LSE, rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fagen.ops import reference


@pytest.mark.emulated
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(1, 1), (1, 2), (130, 130)])
def test_huge_equal_values_are_exact(cases: Any, mask: str, seqlen_q: int, seqlen_k: int) -> None:
    op = cases.op(head_dim=64, mask=mask)
    q, k, v = (torch.full_like(x, 133120.0) for x in cases.qkv(op, 1, seqlen_q, seqlen_k, 1))
    out, lse = cases.run(op, q, k, v)
    assert torch.all(out == 133120.0)
    torch.testing.assert_close(lse, torch.full_like(lse, 133120.0**2 * 64 * 64**-0.5), rtol=1e-5, atol=0.0)


@pytest.mark.emulated
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("seqlen_q", [1, 77])
def test_lse_is_fp32_and_natural(cases: Any, mask: str, seqlen_q: int) -> None:
    op = cases.op(head_dim=64, mask=mask)
    q, k, v = cases.qkv(op, 2, seqlen_q, 200 if cases.small else 1000, 8, 2)
    _, lse = cases.run(op, q, k, v)
    _, exact = reference.attention(op.spec.problem, q, k, v)
    assert lse.dtype == torch.float32 and lse.shape == (2, 8, seqlen_q)
    torch.testing.assert_close(lse.double(), exact, rtol=0.0, atol=1e-3)


@pytest.mark.emulated
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_rounding(cases: Any, dtype: str, head_dim: int, mask: str) -> None:
    op = cases.op(dtype=dtype, head_dim=head_dim, mask=mask)
    shape, seeds = ((2, 70, 70, 1), 1) if cases.small else ((2, 2048, 2048, 4), 5)
    for seed in range(seeds):
        cases.assert_right(op, *cases.qkv(op, *shape, seed=seed))

    q, k, v = cases.qkv(op, *shape)
    ones, _ = cases.run(op, q, k, torch.ones_like(v))
    assert (ones.float() - 1).abs().max().item() <= 2**-8

    q, k = torch.zeros_like(q), torch.zeros_like(k)
    mean, _ = cases.run(op, q, k, v)
    exact, _ = reference.attention(op.spec.problem, q, k, v)
    error = (mean.double() - exact).abs().max().item()
    assert error <= 2**-8 * max(1.0, v.abs().max().item())


@pytest.mark.emulated
def test_scale(cases: Any) -> None:
    op = cases.op(head_dim=64, mask="causal")
    q, k, v = cases.qkv(op, 2, 130, 130, 2)
    assert torch.equal(op(q, k, v, scale=0.125), op(q, k, v)), "1/sqrt(head_dim) is the default"
    torch.testing.assert_close(op(q, k, v, scale=0.5), op(q * 4, k, v), rtol=0.0, atol=0.0)
