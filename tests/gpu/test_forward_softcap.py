"""Capped scores: cap * tanh(score / cap), taken before the mask."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from gpu_cases import Cases

from fagen.ops import reference

pytestmark = pytest.mark.family("v2", "v3")

MASKS: dict[str, Any] = {"none": "none", "causal": "causal", "window": {"window": [100, 20]}}


@pytest.mark.emulated(head_dim=[64], dtype=["bf16"], mask=["causal"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_scores_on_both_sides_of_the_cap(cases: Cases, dtype: str, head_dim: int, mask: str) -> None:
    """Tiles of both kinds are ragged; heads are grouped; some queries see no key."""
    op = cases.op(dtype=dtype, head_dim=head_dim, mask=MASKS[mask], softcap=5.0)
    for seqlen_q, seqlen_k in ((50, 83), (83, 50)) if cases.small else ((500, 833), (833, 500)):
        q, k, v = cases.inputs(op, 2, seqlen_q, seqlen_k, 4, 2)
        cases.assert_right(op, 4 * q, k, v)


@pytest.mark.emulated(softcap=[1.0])
@pytest.mark.parametrize("softcap", [1.0, 50.0])
def test_hidden_keys_do_not_leak(cases: Cases, softcap: float) -> None:
    op = cases.op(dtype="fp16", head_dim=64, mask="causal", softcap=softcap)
    q, k, v = cases.inputs(op, 1, 128, 128, 2)
    out = cases.assert_right(op, q, k, v)
    k[:, 41:], v[:, 41:] = 1000.0, -7.0
    assert torch.equal(op(q, k, v)[:, :41], out[:, :41])


@pytest.mark.emulated
@pytest.mark.parametrize("layout", ["bshd", "thd"])
def test_the_layouts(cases: Cases, layout: str) -> None:
    op = cases.op(head_dim=64, mask="causal", softcap=5.0, layout=layout)
    if layout == "thd":
        inputs = cases.packed(op, (40, 0, 33, 70), (50, 9, 70, 0), 4, 2, unused=5)
    else:
        inputs = cases.inputs(op, 2, 70, 90, 4, 2)
    cases.assert_right(op, *inputs)


@pytest.mark.emulated
@pytest.mark.parametrize("scale", [None, 1e30])
def test_under_the_least_cap_every_key_counts_the_same(cases: Cases, scale: float | None) -> None:
    op = cases.op(head_dim=64, mask="none", softcap=1e-6)
    q, k, v = cases.inputs(op, 1, 40, 70, 1)
    q[:, 1] = 0.0
    out, lse = cases.run(op, q, k, v, scale=scale)
    torch.testing.assert_close(
        out.float(), v.float().mean(1, keepdim=True).expand(out.shape), atol=2e-3, rtol=0
    )
    torch.testing.assert_close(lse, torch.full_like(lse, math.log(70)))


@pytest.mark.emulated
@pytest.mark.parametrize("value", [30.0, 133120.0])
def test_scores_far_above_the_cap_are_the_cap(cases: Cases, value: float) -> None:
    """And far below it minus the cap: half of the keys count e^(2 cap) times what the others do."""
    op, cap = cases.op(head_dim=64, mask="none", softcap=2.0), 2.0
    q, k, v = cases.inputs(op, 1, 40, 70, 1)
    q, k = torch.full_like(q, value), torch.full_like(k, value)
    k[:, ::2] = -value
    out, lse = cases.run(op, q, k, v)
    sign = torch.ones(70, dtype=torch.float64, device=v.device)
    sign[::2] = -1
    weights = (cap * sign).softmax(0)
    exact = (weights @ v[0, :, 0].double()).expand(40, 64)
    assert (out[0, :, 0].double() - exact).abs().max() <= 2**-7 * v.abs().max()
    assert (lse.double() - (cap * sign).logsumexp(0)).abs().max() <= 1e-3


@pytest.mark.emulated
def test_a_cap_far_above_the_scores(cases: Cases) -> None:
    """tanh of small numbers: its rounding, 1000 times as large, must not show."""
    op = cases.op(head_dim=64, mask="causal", softcap=1000.0)
    inputs = cases.inputs(op, 1, 70, 90, 2)
    _, lse = cases.run(op, *inputs)
    cases.assert_right(op, *inputs)
    _, uncapped = reference.attention(cases.op(head_dim=64, mask="causal").spec.problem, *inputs)
    assert (lse.double() - uncapped).abs().max() <= 1e-3


@pytest.mark.emulated(factor=[40.0], growth=[3])
@pytest.mark.family("v3")
@pytest.mark.parametrize("growth", [3, 30])
@pytest.mark.parametrize("factor", [6.0, 40.0])
def test_scores_computed_again_are_capped_again(cases: Cases, factor: float, growth: int) -> None:
    """Scores grow from tile to tile, last key to first, so that P is taken back in some of them."""
    schedule = {"softmax.rescale": {"growth": growth}}
    op = cases.op(head_dim=64, mask="none", softcap=60.0, schedule=schedule)
    q, k, v = cases.inputs(op, 1, 100, 230, 2, 1)
    steps = torch.arange(230, device=k.device).flip(0) // 32
    k *= (1 + (factor - 1) / 7 * steps).view(1, -1, 1, 1)
    cases.assert_right(op, q, k, v)
