"""Scores that grow or fall along the keys: wherever a kernel keeps a maximum that is no longer the row's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from gpu_cases import Cases
from torch import Tensor

from fagen.ops import reference

# What a key adds to every score, in nats, by its place among the keys, from 0 to 1. Before an op that looks
# for no maximum has to, P may grow by 2^30 in bf16 and 2^15 in fp16: 20.8 and 10.4 nats. From 2^120 on, 83
# nats, fp32 loses it.
PROFILES: dict[str, Callable[[Tensor], Tensor]] = {
    "rises": lambda at: 60 * at,
    "falls": lambda at: -60 * at,
    "jumps up": lambda at: 40 * (8 * at).floor(),
    "leaps up": lambda at: 120 * (8 * at).floor(),
    "jumps down": lambda at: -40 * (8 * at).floor(),
    "sink": lambda at: 50.0 * (at == 0),
    "weak sink": lambda at: 12.0 * (at == 0),
    "last key": lambda at: 50.0 * (at == 1),
    "spikes": lambda at: 25 * ((at * 97) % 1) ** 8,
    "valley": lambda at: 160 * (at - 0.5).abs(),
    "hill": lambda at: -160 * (at - 0.5).abs(),
    "far above": lambda at: 3000 + 30 * at,
    "far below": lambda at: -3000 - 30 * at,
    "huge": lambda at: 50000 - 40000 * at,
}
# Largest error as a share of max |v|: P and out are rounded once each, and scores as fp32 holds them.
STRICT = {"bf16": 2.0**-7, "fp16": 2.0**-9}
STRICT_HUGE = 2.0**-5


@pytest.mark.emulated
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("profile", PROFILES)
def test_scores_along_the_keys(cases: Cases, profile: str, dtype: str, mask: str) -> None:
    op = cases.op(dtype=dtype, head_dim=64, mask=mask)
    shape = (1, 40, 160, 1) if cases.small else (2, 700, 1300, 3)
    q, k, v = inputs = cases.inputs(op, *shape)
    at = torch.linspace(0, 1, shape[2], device=cases.device)
    q[..., 0] = 8.0  # times 1/sqrt(64)
    k[..., 0] = PROFILES[profile](at).unsqueeze(-1)
    out, lse = result = cases.run(op, *inputs)
    if profile != "huge":  # plain attention has infinite scores there
        cases.assert_result(op, inputs, result)
    exact, exact_lse = reference.attention(op.spec.problem, *inputs)
    allowed = STRICT_HUGE if profile == "huge" else STRICT[dtype]
    assert (out.double() - exact).abs().max() <= allowed * v.abs().max()
    torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-6, atol=1e-3)


@pytest.mark.emulated(dtype=["fp16"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_rows_that_differ(cases: Cases, dtype: str) -> None:
    """Each row grows somewhere else, some of them not at all, and some see their first key late."""
    op = cases.op(dtype=dtype, head_dim=64, mask={"window": [90, 30]})
    shape = (1, 150, 160, 1) if cases.small else (2, 700, 900, 3)
    q, k, v = cases.inputs(op, *shape)
    places = torch.randint(shape[2], (64,), generator=torch.Generator().manual_seed(0))
    k[:, places] *= 12
    q[:, ::3] *= 8
    q[:, 1::3] = 0
    cases.assert_right(op, q, k, v)
