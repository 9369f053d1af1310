"""Ops of family v2 in the emulator: soft cap, dropout and packed sequences, all at once, at odd tiles."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import fagen
from fagen.emu import settings
from fagen.ops import reference
from fagen.ops.dropout_mask import kept
from fagen.ops.layout import Packing
from fagen.ops.op import AttentionOp

SEEDS = range(3)
P = 0.3
HEADS_Q, HEADS_KV, DIM, DIM_V = 4, 2, 40, 24
LENGTHS_Q, LENGTHS_K = (70, 0, 64, 1, 5), (33, 40, 0, 90, 48)
ROWS, KEYS = sum(LENGTHS_Q) + 9, sum(LENGTHS_K) + 50  # some are of no sequence

# Schedule and mask: one and two blocks of 16 rows per warp, 2 to 4 stages, Q in shared memory or registers.
CASES: dict[str, dict[str, Any]] = {
    "two_blocks": {"tile": {"q": 64, "kv": 48}, "roles": {"math": {"warps": 2}}, "stages": {"kv": 3}},
    "registers": {
        "tile": {"q": 16, "kv": 16},
        "roles": {"math": {"warps": 1}},
        "stages": {"kv": 4},
        "q_operand": "registers",
        "scheduler": "longest_first",
    },
}
MASKS: dict[str, Any] = {"two_blocks": {"window": [30, 5]}, "registers": "causal"}


@pytest.fixture(scope="module", params=CASES)
def op(request: pytest.FixtureRequest) -> AttentionOp:
    problem = {
        "dtype": "fp16",
        "head_dim": DIM,
        "head_dim_v": DIM_V,
        "layout": "thd",
        "mask": MASKS[request.param],
        "softcap": 3.0,
        "dropout": True,
        "passes": ["forward"],
    }
    name = f"emu_v2_{request.param}"
    spec = {
        "name": name,
        "family": "v2",
        "arch": "sm_80",
        "problem": problem,
        "schedule": CASES[request.param],
    }
    return fagen.load(spec, device="emu")


@pytest.fixture(scope="module")
def inputs() -> tuple[Any, ...]:
    """q, k, v, with NaN in rows of no sequence; offsets and lengths."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(rows, heads, dim, generator=generator).half()
        for rows, heads, dim in ((ROWS, HEADS_Q, DIM), (KEYS, HEADS_KV, DIM), (KEYS, HEADS_KV, DIM_V))
    )
    q[sum(LENGTHS_Q) :] = k[sum(LENGTHS_K) :] = v[sum(LENGTHS_K) :] = math.nan
    cu_q, cu_k = (torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (LENGTHS_Q, LENGTHS_K))
    return q, k, v, cu_q, cu_k, max(LENGTHS_Q), max(LENGTHS_K)


def run(op: AttentionOp, inputs: tuple[Any, ...], seed: int, p: float) -> tuple[Tensor, Tensor]:
    q, k, v, *packing = inputs
    out, lse, _ = op.forward(q, k, v, Packing(*packing), None, torch.tensor([seed]), None, p)
    assert lse is not None
    return out, lse


@pytest.mark.parametrize("p", [P, 0.9])
def test_everything_at_once(op: AttentionOp, inputs: tuple[Any, ...], p: float) -> None:
    """Sequences without queries, without keys and shorter than a tile; rows of no sequence."""
    seed = -(2**62) - 12345
    mask = kept(seed, len(LENGTHS_Q), HEADS_Q, max(LENGTHS_Q), max(LENGTHS_K), p)
    problem, dropout = op.spec.problem, {"dropout_p": p, "kept": mask}
    exact, exact_lse = reference.attention(problem, *inputs[:5], **dropout)
    plain, _ = reference.plain_attention(problem, *inputs[:5], **dropout)
    for order in SEEDS:
        with settings.override(seed=order):
            out, lse = run(op, inputs, seed, p)
        assert (out.double() - exact).abs().max() <= reference.allowed_error(problem, plain, exact)
        assert torch.equal(lse == -math.inf, exact_lse == -math.inf)
        torch.testing.assert_close(lse.double(), exact_lse, rtol=0, atol=1e-3)


def test_the_lse_knows_no_dropout(op: AttentionOp, inputs: tuple[Any, ...]) -> None:
    assert torch.equal(run(op, inputs, 1, P)[1], run(op, inputs, 2, 0.0)[1])


def test_without_anything_to_drop_the_seed_does_not_matter(op: AttentionOp, inputs: tuple[Any, ...]) -> None:
    assert torch.equal(run(op, inputs, 1, 0.0)[0], run(op, inputs, 2, 0.0)[0])
    assert not torch.equal(run(op, inputs, 1, P)[0], run(op, inputs, 2, P)[0])
