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
from fagen.ops.op import AttentionOp
from fagen.plan.launch import Shape
from fagen.plan.planner import plan

SEEDS = range(3)
TWO_WARPGROUPS: dict[str, Any] = {"schedule.tile.q": 128, "schedule.roles.math.warps": 8}


def load(name: str, **changed: Any) -> AttentionOp:
    """A v3 op with small tiles; keys of `changed` are dotted, with __ for the dots."""
    spec = {
        "name": f"emu_v3_{name}",
        "family": "v3",
        "arch": "sm_90a",
        "problem": {"dtype": "bf16", "head_dim": 64, "passes": ["forward"]},
        "schedule": {"tile": {"q": 64, "kv": 32}, "stages": {"kv": 2}, "roles": {"math": {"warps": 4}}},
    }
    return fagen.load(spec, changed, device="emu")


CASES: dict[str, dict[str, Any]] = {
    "in_order": {
        "schedule.scheduler": "in_order",
        "schedule.stages": {"q": 1, "kv": 3},
        "schedule.roles": {"load": {"registers": 40}, "math": {"warps": 4, "registers": 240}},
    },
    "longest_first": {
        "schedule.scheduler": "longest_first",
        "schedule.stages": {"q": 2, "kv": 4},
        "problem.mask": "causal",
    },
    "persistent": {"schedule.scheduler": "persistent", "schedule.softmax.rescale": "always"},
    "persistent_lpt": {"schedule.scheduler": "persistent_lpt", "problem.mask": "causal"},
    "no_overlap": {"schedule.roles.math.overlap": False, "problem.layout": "bhsd"},
    "pingpong": TWO_WARPGROUPS | {"schedule.roles.math.pingpong": True},
    "no_pingpong": TWO_WARPGROUPS | {"schedule.roles.math.pingpong": False, "schedule.stages.q": 1},
    "pingpong_no_overlap": TWO_WARPGROUPS
    | {"schedule.roles.math.pingpong": True, "schedule.roles.math.overlap": False, "problem.mask": "causal"},
    # More rows than queries; no room for O in shared memory.
    "three_warpgroups": {
        "problem.head_dim_v": 96,
        "problem.mask": "causal",
        "schedule.tile": {"q": 192, "kv": 80},
        "schedule.stages": {"q": 1, "kv": 8},
        "schedule.roles.math.warps": 12,
    },
    "cluster": {"schedule.cluster": 2, "problem.mask": "causal"},
    "pack_gqa": {"schedule.pack_gqa": True, "problem.mask": "causal"},
    "softmax": {"schedule.softmax.exp2": {"polynomial": 0.5}, "schedule.softmax.rescale": {"lazy": 4.0}},
    "window": {"problem.mask": {"window": [20, 3]}},
    "window_left": {"problem.mask": {"window": [0, None]}},
    "o_from_registers": TWO_WARPGROUPS | {"problem.head_dim": 256, "schedule.tile.kv": 64},
    "panels_of_32_columns": {"problem.head_dim": 160, "problem.head_dim_v": 224, "problem.mask": "causal"},
    "padded_columns": {"problem.head_dim": 72, "problem.head_dim_v": 40, "problem.dtype": "fp16"},
}


@pytest.mark.parametrize("name", CASES)
def test_right_under_every_seed(name: str) -> None:
    """More work items than the emulated GPU has SMs, ragged tiles of both kinds, grouped heads."""
    done = emulated_trial(load(name, **CASES[name]), Shape(2, 70, 83, 4, 2), 0, SEEDS)
    assert done.right


@pytest.mark.parametrize("name", CASES)
def test_o_is_stored_as_the_case_says(name: str) -> None:
    by_tma = plan(load(name, **CASES[name]).spec).tiling.own_o
    assert by_tma == (name not in ("three_warpgroups", "o_from_registers"))


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
    allowed = reference.allowed_error(problem, reference.plain_attention(problem, *tensors)[0], exact)
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


def test_pairs_of_ctas_whose_sequences_are_empty() -> None:
    """The warps of a CTA without work exit before the cluster's last barrier."""
    op = load("packed_cluster", **{"problem.layout": "thd", "schedule.cluster": 2, "problem.mask": "causal"})
    assert_right(op, packed(op, (0, 0, 5), (30, 0, 9), (1, 1)))
    assert_right(op, packed(op, (70, 0, 150, 1), (20, 40, 90, 64), (2, 1), rest=3))


GROWTH: dict[str, dict[str, Any]] = {
    "bf16": {"schedule.softmax.rescale": {"growth": 30}},
    "fp16": {"schedule.softmax.rescale": {"growth": 15}, "problem.dtype": "fp16"},
    "polynomial": {
        "schedule.softmax": {"rescale": {"growth": 3}, "exp2": {"polynomial": 0.5}},
        "problem.mask": "causal",
    },
    "all_polynomial": {
        "schedule.softmax": {"rescale": {"growth": 15}, "exp2": {"polynomial": 1.0}},
        "problem.dtype": "fp16",
        "problem.mask": {"window": [100, 20]},
    },
}


@pytest.fixture(scope="module", params=GROWTH)
def growth_op(request: pytest.FixtureRequest) -> AttentionOp:
    return load(f"growth_{request.param}", **GROWTH[request.param])


def qkv(op: AttentionOp, seqlen_q: int, seqlen_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random inputs of two query heads and one K/V head."""
    generator = torch.Generator().manual_seed(0)
    dtype = torch.float16 if op.spec.problem.dtype == "fp16" else torch.bfloat16
    q, k, v = (
        torch.randn(1, rows, heads, 64, generator=generator).to(dtype)
        for rows, heads in ((seqlen_q, 2), (seqlen_k, 1), (seqlen_k, 1))
    )
    return q, k, v


class TestGrowth:
    """Tiles whose P is taken without looking for the maximum, and scaled down where it has grown."""

    @pytest.mark.parametrize("factor", [1, 6, 40], ids="factor_{}".format)
    def test_maxima_that_jump(self, growth_op: AttentionOp, factor: float) -> None:
        """Keys are worked on from the last to the first: scores grow from tile to tile."""
        q, k, v = qkv(growth_op, 100, 230)
        steps = torch.arange(230).flip(0) // 32
        k *= (1 + (factor - 1) / 7 * steps).view(1, -1, 1, 1)
        assert_right(growth_op, (q, k, v))

    def test_one_key_far_above_all_others(self, growth_op: AttentionOp) -> None:
        """One row, in the middle of a tile and of the keys."""
        q, k, v = qkv(growth_op, 90, 150)
        k[0, 77, 0] = 30 * q[0, 33, 1]
        assert_right(growth_op, (q, k, v))

    @pytest.mark.parametrize("sizes", [(1, 1), (1, 2), (130, 130), (70, 30), (5, 200)], ids=str)
    def test_huge_equal_values(self, growth_op: AttentionOp, sizes: tuple[int, int]) -> None:
        """Scores are exact in fp32; their exponents are off by thousands, unless subtracted first."""
        problem = growth_op.spec.problem
        value = 55296.0 if problem.dtype == "fp16" else 133120.0
        q, k, v = qkv(growth_op, *sizes)
        q, k, same = (torch.full_like(x, value) for x in (q, k, v))
        seen = reference.visible(problem, *sizes).any(1)
        exact_out, _ = reference.attention(problem, q, k, v)
        allowed = torch.finfo(v.dtype).eps * exact_out.abs().max()
        for seed in SEEDS:
            with settings.override(seed=seed):
                assert (growth_op(q, k, v).double() - exact_out).abs().max() <= allowed
                out, lse = growth_op(q, k, same, return_lse=True)
            assert torch.all(out[:, seen] == value) and torch.all(out[:, ~seen] == 0)
            assert torch.all(lse[..., ~seen] == -math.inf)
            exact = torch.full_like(lse[..., seen], value**2 * 64 * 64**-0.5)
            torch.testing.assert_close(lse[..., seen], exact, rtol=1e-5, atol=0.0)

    @pytest.mark.parametrize("sizes", [(130, 40), (200, 7), (64, 31), (3, 33)], ids=str)
    def test_rows_without_keys_and_less_than_a_tile_of_them(
        self, growth_op: AttentionOp, sizes: tuple[int, int]
    ) -> None:
        assert_right(growth_op, qkv(growth_op, *sizes))


def test_results_do_not_depend_on_how_many_clusters_run_at_once() -> None:
    op = load("cluster", **CASES["cluster"])
    q, k, v = (torch.randn(1, 200, 2, 64).bfloat16() for _ in "qkv")
    results = []
    for os_threads in (1, 2):
        with settings.override(os_threads=os_threads, seed=5):
            results.append(op(q, k, v))
    assert torch.equal(*results)
