"""Ops of 8-bit q, k and v in the emulator: every key that they have of their own, with each of the others."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import fagen
from fagen.bench.expected import expected, in_full, random_inputs
from fagen.bench.trial import emulated_trial
from fagen.ops import reference
from fagen.ops.op import AttentionOp
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.model import Problem

SEEDS = range(2)
TWO_WARPGROUPS: dict[str, Any] = {"schedule.tile.q": 128, "schedule.roles.math.warps": 8}
BLOCKS: dict[str, Any] = {"problem.fp8": {"scale": "block"}}


def load(name: str, **changed: Any) -> AttentionOp:
    """A v3 op of 8-bit tensors with small tiles; keys of `changed` are dotted, with __ for the dots."""
    spec = {
        "name": f"emu_fp8_{name}",
        "family": "v3",
        "arch": "sm_90a",
        "problem": {"dtype": "e4m3", "head_dim": 64, "passes": ["forward"]},
        "schedule": {"tile": {"q": 64, "kv": 32}, "stages": {"kv": 2}, "roles": {"math": {"warps": 4}}},
    }
    return fagen.load(spec, changed, device="emu")


CASES: dict[str, dict[str, Any]] = {
    "plain": {"schedule.softmax.rescale": {"growth": 4.0}},
    "always": {"schedule.softmax.rescale": "always", "problem.layout": "bhsd", "schedule.tile.kv": 64},
    "lazy": {"schedule.softmax.rescale": {"lazy": 4.0}, "schedule.softmax.exp2": {"polynomial": 0.5}},
    "e5m2": {"problem.dtype": "e5m2", "problem.out_dtype": "fp16", "problem.mask": "causal"},
    "columns": {"problem.head_dim": 128, "schedule.scheduler": "in_order", "problem.mask": "causal"},
    "columns_of_v": {"problem.head_dim_v": 256, "schedule.tile.kv": 64, "problem.softcap": 3.0},
    "packed": {"problem.layout": "thd", "problem.mask": "causal"},
    "cluster": {"schedule.cluster": 2, "problem.mask": "causal", "schedule.scheduler": "persistent"},
    "pack_gqa": {"schedule.pack_gqa": True, "problem.mask": "causal"},
    "no_overlap": {"schedule.roles.math.overlap": False, "problem.mask": {"window": [20, 3]}},
    "pingpong": TWO_WARPGROUPS | {"schedule.roles.math.pingpong": True, "problem.mask": "causal"},
    "no_pingpong": TWO_WARPGROUPS | {"schedule.roles.math.pingpong": False, "schedule.stages.q": 1},
    "blocks": BLOCKS | {"problem.layout": "bhsd"},
    "blocks_pingpong": BLOCKS | TWO_WARPGROUPS | {"schedule.tile.kv": 64, "problem.mask": "causal"},
    "promoted": {"schedule.accumulate.promote_every": 64},
    "promoted_blocks": BLOCKS | {"schedule.accumulate.promote_every": 32, "problem.head_dim": 128},
    "transposed": {"problem.v_transposed": True, "problem.mask": "causal"},
    "transposed_blocks": BLOCKS | {"problem.v_transposed": True, "problem.layout": "bhsd"},
}


@pytest.mark.parametrize("name", CASES)
def test_right_under_every_seed(name: str) -> None:
    """More work items than the emulated GPU has SMs, ragged tiles of both kinds, grouped heads."""
    keys = 150 if "blocks" in name else 83
    keys += -keys % 4 if "transposed" in name else 0
    done = emulated_trial(load(name, **CASES[name]), Shape(2, 70, keys, 4, 2), 0, SEEDS)
    assert done.right, done.deviations


@pytest.mark.parametrize(
    ("keys", "columns"),
    [
        *itertools.product([32, 96, 128, 160, 192, 224], [64, 128]),
        (32, 256),
        (64, 256),
        (96, 256),
        (128, 256),
    ],
)
def test_v_of_any_tile_is_transposed(keys: int, columns: int) -> None:
    """Warps share groups of 32 keys where these share out evenly, or else blocks of 16 columns."""
    op = load("shares", **{"schedule.tile.kv": keys, "problem.head_dim_v": columns})
    done = emulated_trial(op, Shape(1, 40, 2 * keys + 13, 2, 1), 0, SEEDS)
    assert done.right, done.deviations


@pytest.mark.parametrize("pingpong", [False, True], ids=["no_turns", "turns"])
@pytest.mark.parametrize("name", ["plain", "e5m2", "packed", "pack_gqa", "columns", "blocks", "transposed"])
def test_scores_that_exp2_loses(name: str, pingpong: bool) -> None:
    """They grow by hundreds from tile to tile, and are computed again: with turns from K in global memory."""
    turns = TWO_WARPGROUPS | {"schedule.roles.math.pingpong": True} if pingpong else {}
    op = load(f"{name}_{'turns' if pingpong else 'no_turns'}", **CASES[name] | turns)
    assert plan(op.spec).tiling.releases_k_early == pingpong
    problem = op.spec.problem
    inputs = random_inputs(problem, Shape(2, 130, 152, 4, 2), seed=0, device="cpu")
    exact, _ = reference.attention(problem, *in_full(problem, inputs)[:5], scale=100.0)
    assert reference.relative_error(op(*inputs, scale=100.0), exact) <= reference.ALLOWED_RELATIVE_ERROR


@pytest.mark.parametrize("name", ["plain", "blocks", "packed"])
@pytest.mark.parametrize("which", ["q", "k", "v"])
def test_one_descale_is_that_of_its_sequence_and_heads_alone(name: str, which: str) -> None:
    op = load(name, **CASES[name])
    problem = op.spec.problem
    inputs = list(random_inputs(problem, Shape(2, 40, 150, 4, 2), seed=0, device="cpu"))
    before = by_sequence(problem, op(*inputs))
    at = "qkv".index(which) - 3
    inputs[at] = inputs[at].clone()
    inputs[at][1, 1] *= 1.5
    out = op(*inputs)
    exact = expected(problem, tuple(inputs))
    assert exact.error(out) <= exact.allowed
    differs = (by_sequence(problem, out) != before).any(-1)  # [sequence, query, head]
    heads = [1] if which == "q" and problem.scales_blocks else [2, 3]
    assert differs[1][:, heads].all()
    differs[1][:, heads] = False
    assert not differs.any()


@pytest.mark.parametrize("name", ["plain", "always", "blocks", "packed"])
@pytest.mark.parametrize("which", ["q", "k", "v"])
@pytest.mark.parametrize("value", [math.nan, -1.0])
def test_a_descale_that_is_none_is_not_hidden(name: str, which: str, value: float) -> None:
    """NaN, or for a scale below 0 what it stands for; a finite number that means nothing in no case."""
    op = load(name, **CASES[name])
    problem = op.spec.problem
    inputs = list(random_inputs(problem, Shape(2, 40, 150, 4, 2), seed=0, device="cpu"))
    at = "qkv".index(which) - 3
    inputs[at] = inputs[at].clone()
    inputs[at][1, 1] = value
    out = by_sequence(problem, op(*inputs))
    heads = [1] if which == "q" and problem.scales_blocks else [2, 3]
    found, exact = (x[1][:, heads] for x in (out, by_sequence(problem, expected(problem, tuple(inputs)).out)))
    assert found.isnan().all() or reference.relative_error(found, exact) <= reference.ALLOWED_RELATIVE_ERROR
    out[1][:, heads] = 0
    assert out.isfinite().all()


def by_sequence(problem: Problem, out: Tensor) -> Tensor:
    """As [sequence, query, head, column], of two sequences."""
    if problem.layout == "thd":
        return out.unflatten(0, (2, -1))
    return out.transpose(1, 2) if problem.layout == "bhsd" else out


def test_descales_two_orders_of_magnitude_apart() -> None:
    """Every head by itself is right, whatever scale its neighbours have."""
    op = load("plain", **CASES["plain"])
    shape = Shape(2, 70, 83, 4, 2)
    q, k, v, *packing, _, _, _ = random_inputs(op.spec.problem, shape, seed=0, device="cpu")
    values = 0.05 * 160 ** (torch.arange(12).mul(5).remainder(12) / 11)
    # The largest elements are 448: here 4, in their own units, as standard normal numbers have them.
    descales = (values.view(3, 2, 2) * 4 / torch.finfo(q.dtype).max).unbind()
    inputs = (q, k, v, *packing, *descales)
    out, exact = op(*inputs), expected(op.spec.problem, inputs).out
    for b, h in itertools.product(range(2), range(4)):
        error = reference.relative_error(out[b, :, h], exact[b, :, h])
        assert error <= reference.ALLOWED_RELATIVE_ERROR, (b, h)
