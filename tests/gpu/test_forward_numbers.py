"""Values: huge scores, LSE, rounding."""

from __future__ import annotations

import pytest
import torch
from gpu_cases import Cases

from fagen.ops import reference


@pytest.mark.emulated
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(1, 1), (1, 2), (130, 130)])
def test_huge_equal_values_are_exact(cases: Cases, mask: str, seqlen_q: int, seqlen_k: int) -> None:
    op = cases.op(head_dim=64, mask=mask)
    q, k, v = (torch.full_like(x, 133120.0) for x in cases.inputs(op, 1, seqlen_q, seqlen_k, 1))
    out, lse = cases.run(op, q, k, v)
    assert torch.all(out == 133120.0)
    torch.testing.assert_close(lse, torch.full_like(lse, 133120.0**2 * 64 * 64**-0.5), rtol=1e-5, atol=0.0)


@pytest.mark.emulated
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("seqlen_q", [1, 77])
def test_lse_is_fp32_and_natural(cases: Cases, mask: str, seqlen_q: int) -> None:
    op = cases.op(head_dim=64, mask=mask)
    q, k, v = cases.inputs(op, 2, seqlen_q, 200 if cases.small else 1000, 8, 2)
    _, lse = cases.run(op, q, k, v)
    _, exact = reference.attention(op.spec.problem, q, k, v)
    assert lse.dtype == torch.float32 and lse.shape == (2, 8, seqlen_q)
    torch.testing.assert_close(lse.double(), exact, rtol=0.0, atol=1e-3)


@pytest.mark.emulated(head_dim=[64])
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_rounding(cases: Cases, dtype: str, head_dim: int, mask: str) -> None:
    op = cases.op(dtype=dtype, head_dim=head_dim, mask=mask)
    shape, seeds = ((2, 70, 70, 1), 1) if cases.small else ((2, 2048, 2048, 4), 5)
    for seed in range(seeds):
        cases.assert_right(op, *cases.inputs(op, *shape, seed=seed))

    q, k, v = cases.inputs(op, *shape)
    ones, _ = cases.run(op, q, k, torch.ones_like(v))
    assert (ones.float() - 1).abs().max().item() <= 2**-8

    q, k = torch.zeros_like(q), torch.zeros_like(k)
    mean, _ = cases.run(op, q, k, v)
    exact, _ = reference.attention(op.spec.problem, q, k, v)
    error = (mean.double() - exact).abs().max().item()
    assert error <= 2**-8 * max(1.0, v.abs().max().item())


@pytest.mark.emulated
def test_scale(cases: Cases) -> None:
    op = cases.op(head_dim=64, mask="causal")
    q, k, v = cases.inputs(op, 2, 130, 130, 2)
    assert torch.equal(op(q, k, v, scale=0.125), op(q, k, v)), "1/sqrt(head_dim) is the default"
    torch.testing.assert_close(op(q, k, v, scale=0.5), op(q * 4, k, v), rtol=0.0, atol=0.0)


@pytest.mark.emulated(dtype=["bf16"])
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_outliers(cases: Cases, dtype: str, mask: str) -> None:
    """A few channels, as language models have them, and a few elements are far larger than all others."""
    op = cases.op(dtype=dtype, head_dim=64, mask=mask)
    shape = (1, 70, 130, 2) if cases.small else (2, 1000, 1300, 4)
    inputs = cases.inputs(op, *shape)
    for i, x in enumerate(inputs):
        generator = torch.Generator(cases.device).manual_seed(i)
        x[..., [3, 40]] *= 10
        x[torch.rand(x.shape, generator=generator, device=cases.device) < 1e-3] *= (
            10  # scores in fp16's range
        )
    cases.assert_right(op, *inputs)


@pytest.mark.emulated
@pytest.mark.parametrize("layout", ["bshd", pytest.param("thd", marks=pytest.mark.family("v2", "v3"))])
def test_a_neighbours_nan_stays_its_own(cases: Cases, layout: str) -> None:
    """Tiles reach past the end of a sequence, where another one's rows may lie."""
    op = cases.op(head_dim=64, mask="none", layout=layout)
    sizes = (50, 70) if cases.small else (200, 300)
    inputs = cases.inputs(op, 3, *sizes, 2)
    for x, length in zip(inputs[:3], (sizes[0], *sizes[1:] * 2), strict=True):
        (x[length : 2 * length] if layout == "thd" else x[1:2]).fill_(torch.nan)
    result = cases.run(op, *inputs)
    cases.assert_result(op, inputs, result, entries=(0, 2))
    middle = result[0][sizes[0] : 2 * sizes[0]] if layout == "thd" else result[0][1]
    assert torch.all(middle.isnan())
