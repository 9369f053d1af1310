"""Scores that exp2 in fp32 loses are computed again, wherever a kernel finds the keys by then."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_cases import Cases
from test_forward_growth import STRICT_HUGE

from fagen.bench.expected import random_inputs
from fagen.ops import reference
from fagen.plan.launch import Shape

# Differences of scores are hundreds: nearly every row grows by more than 2^120 from one tile to the next.
SCALE = 100.0

PLACES: dict[str, dict[str, Any]] = {
    "bshd": {"head_dim": 64},
    "bhsd": {"head_dim": 64, "layout": "bhsd"},
    "thd": {"head_dim": 64, "layout": "thd"},
    "pack_gqa": {"head_dim": 64, "schedule": {"pack_gqa": True}},
    "padded_columns": {"head_dim": 72, "dtype": "fp16"},
    "capped": {"head_dim": 64, "softcap": 1000.0},
}


@pytest.mark.emulated("v3")
@pytest.mark.family("v3")
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("place", PLACES)
def test_lost_scores(cases: Cases, place: str, mask: str) -> None:
    """Grouped heads, and keys that end in the middle of a tile."""
    op = cases.op(mask=mask, **PLACES[place])
    shape = Shape(2, 70, 164, 4, 2) if cases.small else Shape(2, 700, 1300, 4, 2)
    inputs = random_inputs(op.spec.problem, shape, seed=0, device=cases.device)
    exact, _ = reference.attention(op.spec.problem, *inputs[:5], scale=SCALE)
    out = op(*inputs, scale=SCALE)
    assert (out.double() - exact).abs().max() <= STRICT_HUGE * inputs[2].abs().max()
