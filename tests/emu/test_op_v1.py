"""Ops of family v1 in the emulator: Algorithms 1 and 4 of FlashAttention, right under every seed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import fagen
from fagen.emu import settings
from fagen.ops import reference
from fagen.ops.op import AttentionOp
from fagen.ops.reference_gradients import gradients, plain_gradients
from fagen.paths import SPECS

SEEDS = range(3)
SMALL: dict[str, Any] = {"problem.head_dim": 32, "schedule.tile": {"q": 32, "kv": 32}}
PROBLEMS: dict[str, dict[str, Any]] = {
    "causal": {},
    "window": {"problem.mask": {"window": [20, 5]}},
    "no_mask": {
        "problem.mask": "none",
        "problem.dtype": "fp16",
        "problem.layout": "bhsd",
        "problem.head_dim": 40,  # padded to 48 in the forward, to 64 in the backward
        "problem.head_dim_v": 24,
    },
}
LENGTHS = [(70, 100), (100, 70), (33, 1), (1, 65), (64, 64)]


def load(problem: str, **changed: Any) -> AttentionOp:
    """An op with small blocks; keys of `changed` are dotted, with __ for the dots."""
    overrides = {key.replace("__", "."): value for key, value in changed.items()}
    return fagen.load(SPECS / "h200_fa1.yaml", SMALL | PROBLEMS[problem] | overrides, device="emu")


def normal(op: AttentionOp, *sizes: int) -> Tensor:
    """Standard normal [batch, sequence, heads, columns] in the op's dtype and layout."""
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[op.spec.problem.dtype]
    x = torch.randn(sizes).to(dtype)
    return x if op.spec.problem.layout == "bshd" else x.transpose(1, 2).contiguous()


def qkv(
    op: AttentionOp, seqlen_q: int, seqlen_k: int, heads_q: int = 4, heads_kv: int = 2
) -> tuple[Tensor, ...]:
    problem = op.spec.problem
    torch.manual_seed(0)
    rows = ((seqlen_q, heads_q, problem.head_dim), (seqlen_k, heads_kv, problem.head_dim))
    return tuple(normal(op, 2, *sizes) for sizes in (*rows, (seqlen_k, heads_kv, problem.dim_v)))


def run(op: AttentionOp, inputs: tuple[Tensor, ...], dout: Tensor, dlse: Tensor) -> tuple[Tensor, ...]:
    """out, LSE, dQ, dK, dV."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out, lse = op(*leaves, return_lse=True)
    return out.detach(), lse.detach(), *torch.autograd.grad((out, lse), leaves, (dout, dlse))


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_right_and_the_same_under_every_seed(problem: str, lengths: tuple[int, int]) -> None:
    """Several blocks each way, lengths that cut them, grouped heads, and a gradient through the LSE."""
    op = load(problem)
    inputs = qkv(op, *lengths)
    dout = normal(op, 2, lengths[0], 4, op.spec.problem.dim_v)
    dlse = torch.randn(2, 4, lengths[0])
    runs = []
    for seed in SEEDS:
        with settings.override(seed=seed):
            runs.append(run(op, inputs, dout, dlse))
    for results in zip(*runs, strict=True):
        assert all(torch.equal(one, results[0]) for one in results)

    assert_right(op, inputs, dout, dlse, runs[0])


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_many_blocks_lose_nothing(dtype: str) -> None:
    """O and dQ come back 48 times; the first key outweighs all others, each of which changes O by less."""
    op = load("causal", problem__mask="none", problem__dtype=dtype, schedule__tile={"q": 32, "kv": 16})
    inputs = q, k, _ = qkv(op, 64, 48 * 16, heads_q=2, heads_kv=1)
    q[..., 0] = 8.0
    k[..., 0] = 0.0
    k[:, 0, :, 0] = 7.0
    dout, dlse = normal(op, 2, 64, 2, 32), torch.randn(2, 2, 64)
    assert_right(op, inputs, dout, dlse, run(op, inputs, dout, dlse))


def assert_right(
    op: AttentionOp, inputs: tuple[Tensor, ...], dout: Tensor, dlse: Tensor, found: tuple[Tensor, ...]
) -> None:
    """What `run` found is within tolerance."""
    problem = op.spec.problem
    out, lse, *grads = found
    exact, exact_lse = reference.attention(problem, *inputs)
    plain, _ = reference.plain_attention(problem, *inputs)
    assert (out - exact).abs().max() <= reference.allowed_error(problem, plain, exact)
    assert torch.allclose(lse.double(), exact_lse, atol=1e-3)
    wanted = gradients(problem, *inputs, dout=dout, dlse=dlse)
    eager = plain_gradients(problem, *inputs, dout=dout, dlse=dlse)
    for own, plain_one, exact_one in zip(grads, eager, wanted, strict=True):
        allowed = reference.allowed_gradient_error(problem, plain_one, exact_one)
        assert (own - exact_one).abs().max() <= allowed


def test_queries_without_keys_have_no_output_and_no_gradient() -> None:
    """Causal with fewer keys than queries; more rows than a block see nothing."""
    op = load("causal")
    inputs = qkv(op, 100, 20)
    dout = normal(op, 2, 100, 4, 32)
    out, lse, dq, dk, dv = run(op, inputs, dout, torch.ones(2, 4, 100))
    assert not out[:, :80].any() and not dq[:, :80].any()
    assert (lse[..., :80] == -math.inf).all() and lse[..., 80:].isfinite().all()
    assert dk.isfinite().all() and dv.isfinite().all()


def test_keeps_maxima_and_sums_for_the_backward() -> None:
    """m and l of the scaled scores, in this order; a row without keys has -inf and 0."""
    op = load("causal")
    q, k, v = qkv(op, 40, 30)
    _, lse, row_stats = getattr(torch.ops.fagen, op.name)(q, k, v, 0.25)
    m, total = row_stats
    scores = 0.25 * q.double().transpose(1, 2) @ k.double().transpose(1, 2).repeat_interleave(2, 1).mT
    scores.masked_fill_(~reference.visible(op.spec.problem, 40, 30), -math.inf)
    assert torch.allclose(m.double(), scores.amax(-1), atol=1e-4)
    assert (total[..., :10] == 0).all() and torch.allclose(
        (m + total.log())[..., 10:], lse[..., 10:], atol=1e-5
    )


def test_huge_scores_stay_exact() -> None:
    """Scores of 1e11: their differences must not be those of their roundings."""
    op = load("causal")
    inputs = tuple(torch.full_like(x, 133120) for x in qkv(op, 70, 70))
    out, _, *found = run(op, inputs, normal(op, 2, 70, 4, 32), torch.zeros(2, 4, 70))
    assert (out == 133120).all()
    assert all(gradient.isfinite().all() for gradient in found)
