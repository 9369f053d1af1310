"""Ops of family v3 in the emulator: every schedule key, every layout, packed sequences of any length."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import fagen
from fagen.bench.trial import emulated_trial
from fagen.emu import settings
from fagen.ops import reference
from fagen.ops.forward import AttentionOp
from fagen.plan.launch import Shape

SEEDS = range(3)
TWO_WARPGROUPS: dict[str, Any] = {"schedule.tile.q": 128, "schedule.roles.math.warps": 8}


def load(name: str, **changed: Any) -> AttentionOp:
    """A v3 op with small tiles; keys of `changed` are dotted, with __ for the dots."""
    spec = {
        "name": f"emu_v3_{name}",
        "family": "v3",
        "arch": "sm_90a",
        "problem": {"dtype": "bf16", "head_dim": 64},
        "schedule": {"tile": {"q": 64, "kv": 32}, "stages": {"kv": 2}, "roles": {"math": {"warps": 4}}},
    }
    return fagen.load(spec, changed, device="emu")


CASES: dict[str, dict[str, Any]] = {
    "in_order": {"schedule.scheduler": "in_order", "schedule.stages.q": 1},
    "longest_first": {"schedule.scheduler": "longest_first", "problem.mask": "causal"},
    "persistent": {"schedule.scheduler": "persistent", "schedule.stages.q": 2},
    "persistent_lpt": {"schedule.scheduler": "persistent_lpt", "problem.mask": "causal"},
    "no_overlap": {"schedule.roles.math.overlap": False, "problem.layout": "bhsd"},
    "pingpong": TWO_WARPGROUPS | {"schedule.roles.math.pingpong": True},
    "pingpong_no_overlap": TWO_WARPGROUPS
    | {"schedule.roles.math.pingpong": True, "schedule.roles.math.overlap": False, "problem.mask": "causal"},
    "cluster": {"schedule.cluster": 2, "problem.mask": "causal"},
    "softmax": {"schedule.softmax.exp2": {"polynomial": 0.5}, "schedule.softmax.rescale": {"lazy": 4.0}},
    "window": {"problem.mask": {"window": [20, 3]}},
    "window_left": {"problem.mask": {"window": [0, None]}},
    "o_over_q": TWO_WARPGROUPS
    | {"problem.head_dim": 256, "schedule.tile.kv": 64},  # O has no room of its own
    "padded_columns": {"problem.head_dim": 72, "problem.head_dim_v": 40, "problem.dtype": "fp16"},
}


@pytest.mark.parametrize("name", CASES)
def test_right_under_every_seed(name: str) -> None:
    """More work items than the emulated GPU has SMs, ragged tiles of both kinds, grouped heads."""
    done = emulated_trial(load(name, **CASES[name]), Shape(2, 70, 83, 4, 2), 0, SEEDS)
    assert done.right


@pytest.mark.parametrize(
    "shape", [Shape(1, 40, 8, 2, 1), Shape(1, 1, 100, 2, 2), Shape(3, 64, 32, 1, 1)], ids=str
)
def test_other_lengths(shape: Shape) -> None:
    """Queries that see no key; one query; whole tiles."""
    assert emulated_trial(load("persistent_lpt", **CASES["persistent_lpt"]), shape, 0, SEEDS).right


def packed(
    op: AttentionOp,
    lengths_q: tuple[int, ...],
    lengths_k: tuple[int, ...],
    heads: tuple[int, int],
    rest: int = 0,
) -> tuple[Any, ...]:
    """Random arguments of the op, with `rest` rows after the last sequence."""
    generator = torch.Generator().manual_seed(0)

    def tensor(lengths: tuple[int, ...], heads: int, dim: int) -> Tensor:
        return torch.randn(sum(lengths) + rest, heads, dim, generator=generator).bfloat16()

    def offsets(lengths: tuple[int, ...]) -> Tensor:
        return torch.tensor([0, *lengths]).cumsum(0).int()

    problem = op.spec.problem
    return (
        tensor(lengths_q, heads[0], problem.head_dim),
        tensor(lengths_k, heads[1], problem.head_dim),
        tensor(lengths_k, heads[1], problem.dim_v),
        offsets(lengths_q),
        offsets(lengths_k),
        max(lengths_q),
        max(lengths_k),
    )


def assert_right(op: AttentionOp, inputs: tuple[Any, ...]) -> None:
    problem, tensors = op.spec.problem, inputs[:5]
    exact, exact_lse = reference.attention(problem, *tensors)
    allowed = reference.allowed_error(problem, reference.plain_attention(problem, *tensors), exact)
    for seed in SEEDS:
        with settings.override(seed=seed):
            out, lse = op(*inputs, return_lse=True)
        assert (out.double() - exact).abs().max() <= allowed
        assert torch.equal(lse == -math.inf, exact_lse == -math.inf)
        torch.testing.assert_close(lse.double(), exact_lse, rtol=0, atol=1e-3)


MASKS: dict[str, Any] = {"none": "none", "causal": "causal", "window": {"window": [30, 5]}}


@pytest.fixture(scope="module", params=MASKS)
def packed_op(request: pytest.FixtureRequest) -> AttentionOp:
    changed = {"problem.layout": "thd", "problem.mask": MASKS[request.param]}
    return load(f"packed_{request.param}", **changed)


class TestPacked:
    def test_sequences_without_queries_and_without_keys(self, packed_op: AttentionOp) -> None:
        assert_right(packed_op, packed(packed_op, (70, 0, 64, 1, 5), (33, 40, 0, 90, 32), (4, 2)))

    def test_one_query_each(self, packed_op: AttentionOp) -> None:
        assert_right(packed_op, packed(packed_op, (0, 1, 0, 1), (0, 3, 0, 5), (9, 3)))

    def test_rows_of_no_sequence_are_zero(
        self, packed_op: AttentionOp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever memory held before, and whatever those rows of q, k and v hold."""
        inputs = packed(packed_op, (50, 20), (40, 60), (2, 1), rest=90)
        for tensor, tokens in zip(inputs[:3], (70, 100, 100), strict=True):
            tensor[tokens:] = math.nan
        fill = Tensor.new_empty

        def new_empty(like: Tensor, *sizes: Any, **options: Any) -> Tensor:
            return fill(like, *sizes, **options).fill_(math.nan)

        monkeypatch.setattr(Tensor, "new_empty", new_empty)
        out, lse = packed_op(*inputs, return_lse=True)
        monkeypatch.undo()
        assert torch.all(out[70:] == 0) and torch.all(lse[:, 70:] == -math.inf)
        assert_right(packed_op, inputs)

    def test_views_of_one_fused_tensor(self, packed_op: AttentionOp) -> None:
        fused = torch.randn(90, 6, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
        cu = torch.tensor([0, 25, 90], dtype=torch.int32)
        assert_right(packed_op, (fused[:, :4], fused[:, 4:5], fused[:, 5:], cu, cu, 65, 65))

    def test_opcheck(self, packed_op: AttentionOp) -> None:
        op = getattr(torch.ops.fagen, packed_op.name).default
        torch.library.opcheck(op, packed(packed_op, (5, 9), (7, 3), (2, 1)))


def test_results_do_not_depend_on_how_many_clusters_run_at_once() -> None:
    op = load("cluster", **CASES["cluster"])
    q, k, v = (torch.randn(1, 200, 2, 64).bfloat16() for _ in "qkv")
    results = []
    for os_threads in (1, 2):
        with settings.override(os_threads=os_threads, seed=5):
            results.append(op(q, k, v))
    assert torch.equal(*results)
