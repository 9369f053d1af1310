"""Gradients of huge scores, of very negative LSE, through a soft cap and through LSE; rounding."""

from __future__ import annotations

import time

import pytest
import torch
from gpu_cases import Cases

from fagen.bench.expected import random_like


@pytest.mark.emulated("v1", "v2")
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(1, 1), (1, 2), (130, 130)])
def test_huge_equal_values_have_finite_gradients(
    cases: Cases, mask: str, seqlen_q: int, seqlen_k: int
) -> None:
    op = cases.op(head_dim=64, mask=mask)
    inputs = tuple(torch.full_like(x, 133120.0) for x in cases.inputs(op, 1, seqlen_q, seqlen_k, 1))
    (out, _), found = cases.gradients(op, *inputs, dout=cases.dout(op, *inputs))
    assert torch.all(out == 133120.0)
    assert all(x.isfinite().all() for x in found)


@pytest.mark.emulated("v1", "v2", seqlen=[64, 192])
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("seqlen", [64, 192, 703, 704, 1088])
def test_very_negative_scores(cases: Cases, seqlen: int, mask: str) -> None:
    op = cases.op(head_dim=64, mask=mask)
    q, k, v = cases.inputs(op, 1, seqlen, seqlen, 1)
    q, k = 0.1 * q, 0.1 * k
    q[..., 0], k[..., 0] = 1, -960  # all scores near -120
    cases.assert_gradients(op, q, k, v)


@pytest.mark.emulated("v1", "v2", head_dim=[64], dtype=["bf16"])
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_rounding(cases: Cases, dtype: str, head_dim: int, mask: str) -> None:
    op = cases.op(dtype=dtype, head_dim=head_dim, mask=mask)
    shape, seeds = ((1, 100, 100, 1), 1) if cases.small else ((2, 2048, 2048, 4), 5)
    for seed in range(seeds):
        inputs = cases.inputs(op, *shape, seed=seed)
        cases.assert_gradients(op, *inputs, dout=cases.dout(op, *inputs, seed=100 + seed))


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_outliers(cases: Cases, dtype: str, mask: str) -> None:
    """A few channels, as language models have them, and a few elements are far larger than all others."""
    op = cases.op(dtype=dtype, head_dim=64, mask=mask)
    inputs = cases.inputs(op, 2, 1000, 1300, 4)
    for i, x in enumerate(inputs):
        x[..., [3, 40]] *= 10
        generator = torch.Generator(cases.device).manual_seed(i)
        x[torch.rand(x.shape, generator=generator, device=cases.device) < 1e-3] *= 10
    cases.assert_gradients(op, *inputs)


@pytest.mark.emulated("v1", "v2")
def test_scale(cases: Cases) -> None:
    op = cases.op(head_dim=64, mask="causal")
    cases.assert_gradients(op, *cases.inputs(op, 1, 40, 70, 1), scale=0.3)


@pytest.mark.emulated("v1", "v2")
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_gradient_through_lse(cases: Cases, mask: str) -> None:
    """Also of queries that see no key, whose LSE is -inf."""
    op = cases.op(head_dim=64, mask=mask)
    for lengths in [(70, 40)] if cases.small else [(128, 128), (300, 100)]:
        inputs = cases.inputs(op, 1 if cases.small else 2, *lengths, 4, 2)
        dlse = random_like(op(*inputs, return_lse=True)[1], seed=2)
        cases.assert_gradients(op, *inputs, dlse=dlse)
        cases.assert_gradients(op, *inputs, dout=torch.zeros_like(cases.dout(op, *inputs)), dlse=dlse)


def test_gradient_of_the_sums_of_out_and_lse(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.inputs(op, 2, 128, 128, 4)
    out, lse = op(*inputs, return_lse=True)
    cases.assert_gradients(op, *inputs, dout=torch.ones_like(out), dlse=torch.ones_like(lse))


@pytest.mark.family("v2", "v3")
@pytest.mark.emulated("v2", softcap=[1.0])
@pytest.mark.parametrize("softcap", [1.0, 50.0])
def test_softcap(cases: Cases, softcap: float) -> None:
    op = cases.op(head_dim=64, dtype="fp16", softcap=softcap, mask="causal")
    inputs = cases.inputs(op, 1, 70 if cases.small else 128, 70 if cases.small else 128, 2)
    cases.assert_gradients(op, *inputs)


@pytest.mark.family("v2", "v3")
def test_softcap_ends(cases: Cases) -> None:
    op = cases.op(softcap=10.0, mask="causal")
    inputs = cases.inputs(op, 2, 1024, 1024, 32)
    dout = cases.dout(op, *inputs)
    cases.gradients(op, *inputs, dout=dout)  # builds
    started = time.perf_counter()
    _, found = cases.gradients(op, *inputs, dout=dout)
    torch.cuda.synchronize()
    assert time.perf_counter() - started < 5
    cases.assert_near(op, inputs, found, dout=dout)
