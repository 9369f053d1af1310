"""Ops of family v3 with pack_gqa in the emulator: all query heads of a K/V head share its Q tiles."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fagen
from fagen.bench.trial import emulated_trial
from fagen.errors import ArgumentError
from fagen.ops.op import AttentionOp
from fagen.plan.launch import Shape
from fagen.plan.planner import plan

SEEDS = range(3)
TWO_WARPGROUPS: dict[str, Any] = {"schedule.tile.q": 128, "schedule.roles.math.warps": 8}
# Only the wide head leaves shared memory no room for O, which then goes straight from registers.
EPILOGUES: dict[str, dict[str, Any]] = {
    "by_tma": {"problem.head_dim": 64},
    "from_registers": TWO_WARPGROUPS | {"problem.head_dim": 256, "schedule.tile.kv": 64},
}


def load(name: str, **changed: Any) -> AttentionOp:
    """A v3 op with small tiles; keys of `changed` are dotted, with __ for the dots."""
    spec = {
        "name": f"emu_v3_pack_gqa_{name}",
        "family": "v3",
        "arch": "sm_90a",
        "problem": {"dtype": "bf16", "head_dim": 64, "passes": ["forward"]},
        "schedule": {
            "tile": {"q": 64, "kv": 32},
            "stages": {"kv": 2},
            "roles": {"math": {"warps": 4}},
            "pack_gqa": True,
        },
    }
    return fagen.load(spec, changed, device="emu")


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_both_epilogues_are_tested(epilogue: str) -> None:
    assert plan(load(epilogue, **EPILOGUES[epilogue]).spec).tiling.own_o == (epilogue == "by_tma")


@pytest.mark.parametrize("mask", ["none", "causal", {"window": [20, 3]}], ids=["none", "causal", "window"])
@pytest.mark.parametrize("seqlen_q", [1, 3, 65])
@pytest.mark.parametrize("group", [1, 2, 8, 64])
def test_right_under_every_seed(group: int, seqlen_q: int, mask: Any) -> None:
    """Rows of a query on either side of the mask, tiles of few queries, LSE of every head."""
    op = load("mask", **{"problem.mask": mask})
    heads_kv = 1 if group == 64 else 2
    assert emulated_trial(op, Shape(2, seqlen_q, 70, group * heads_kv, heads_kv), 0, SEEDS).right


CASES: dict[str, dict[str, Any]] = {
    "from_registers": EPILOGUES["from_registers"],
    "bhsd": {"problem.layout": "bhsd", "problem.mask": "causal"},
    "bhsd_from_registers": EPILOGUES["from_registers"] | {"problem.layout": "bhsd"},
    "cluster": {"schedule.cluster": 2, "problem.mask": "causal"},
    "two_warpgroups": TWO_WARPGROUPS | {"problem.mask": "causal", "schedule.scheduler": "longest_first"},
    "no_overlap": {"schedule.roles.math.overlap": False, "problem.mask": "causal"},
    "always": {"schedule.softmax.rescale": "always", "problem.mask": {"window": [5, 0]}},
    "padded_columns": {"problem.head_dim": 72, "problem.head_dim_v": 40, "problem.dtype": "fp16"},
}


@pytest.mark.parametrize("shape", [Shape(1, 37, 40, 16, 2), Shape(2, 5, 40, 4, 1)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_with_every_other_key(name: str, shape: Shape) -> None:
    assert emulated_trial(load(name, **CASES[name]), shape, 0, SEEDS).right


def test_bits_do_not_depend_on_who_shares_the_tile() -> None:
    """As far as every row has its own maximum: the heads of a group, packed or not, agree bit for bit."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 21, 8, 64, generator=generator).bfloat16()
    k, v = (torch.randn(1, 50, 2, 64, generator=generator).bfloat16() for _ in "kv")
    always: dict[str, Any] = {"schedule.softmax.rescale": "always", "problem.mask": "causal"}
    packed = load("bits", **always)(q, k, v, return_lse=True)
    plain = load("bits_plain", **always, **{"schedule.pack_gqa": False})(q, k, v, return_lse=True)
    assert all(map(torch.equal, packed, plain))


@pytest.mark.parametrize("group", [3, 65, 128])
def test_refuses_groups_that_no_tile_holds_evenly(group: int) -> None:
    q, kv = torch.zeros(1, 4, group, 64).bfloat16(), torch.zeros(1, 4, 1, 64).bfloat16()
    said = rf"{group} query heads share a K/V head; allowed with schedule.pack_gqa: true: 1, 2, 4, 8,"
    with pytest.raises(ArgumentError, match=said):
        load("refused")(q, kv, kv)


def test_no_heads_at_all() -> None:
    nothing = load("refused")(torch.zeros(2, 4, 0, 64).bfloat16(), *[torch.zeros(2, 4, 2, 64).bfloat16()] * 2)
    assert nothing.shape == (2, 4, 0, 64)
