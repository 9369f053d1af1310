"""Family v1: blocks by the paper's rule, and what is left of them where registers do not hold them."""

from __future__ import annotations

from typing import Any

import pytest

from fagen.errors import PlanError
from fagen.hw.arch import ARCHES
from fagen.paths import SPECS
from fagen.plan.backward_launch import backward_launches
from fagen.plan.formulas import V1_BLOCKS, M
from fagen.plan.ir import Plan
from fagen.plan.kernels import kernels
from fagen.plan.launch import Shape, launch
from fagen.plan.planner import plan
from fagen.plan.symbols import Bc, Br, d, dv
from fagen.plan.v1_budget import RULE_KV, RULE_Q, rule
from fagen.plan.workspaces import workspaces
from fagen.spec.load import load_spec

PASSES = ("forward", "backward")
DIMS = [
    (8, 8),
    (40, 40),
    (64, 64),
    (72, 72),
    (128, 128),
    (192, 128),
    (208, 208),
    (256, 256),
    (8, 256),
    (256, 8),
]
V1_ARCHES = [name for name, arch in ARCHES.items() if "v1" in arch.families]


def planned(direction: str = "forward", arch: str | None = None, **changed: Any) -> Plan:
    """Of the shipped spec for the A100; keys of `changed` are dotted, with __ for the dots."""
    overrides = {key.replace("__", "."): value for key, value in changed.items()}
    return plan(load_spec(SPECS / "a100_fa1.yaml", overrides), arch, direction)


@pytest.mark.parametrize("arch", V1_ARCHES)
@pytest.mark.parametrize("dims", DIMS, ids=str)
def test_every_head_fits_every_arch_within_the_rule(dims: tuple[int, int], arch: str) -> None:
    for direction in PASSES:
        made = planned(direction, arch, problem__head_dim=dims[0], problem__head_dim_v=dims[1])
        most = rule(made.arch, made.dim, made.dim_v, 2)
        assert made.tiling.kv <= most.kv and made.tiling.q <= most.q
        assert all(account.fits for account in made.accounts)
        assert {RULE_KV, RULE_Q} <= {account.resource for account in made.accounts}
        assert kernels(made)[0].smem_bytes <= made.arch.smem_per_cta


@pytest.mark.parametrize("dims", [(64, 64), (128, 64)], ids=str)
def test_the_rule_is_that_of_the_io_model(dims: tuple[int, int]) -> None:
    arch = ARCHES["sm_80"]
    at = {M: arch.smem_per_cta // 2, d: dims[0], dv: dims[1]}
    assert rule(arch, *dims, 2) == tuple(int(V1_BLOCKS[symbol].subs(at)) for symbol in (Br, Bc))


@pytest.mark.parametrize(
    ("arch", "dim", "blocks"),
    [
        ("sm_80", 128, (128, 160)),
        ("sm_86", 64, (64, 192)),
        ("sm_90a", 128, (128, 224)),
        ("sm_90a", 256, (112, 112)),
    ],
)
def test_the_forward_has_the_blocks_of_the_paper(arch: str, dim: int, blocks: tuple[int, int]) -> None:
    """ceil(M/4d) and min(Bc, d), rounded down to multiples of 16; 16 rows to a warp."""
    tiling = planned(arch=arch, problem__head_dim=dim).tiling
    assert (tiling.q, tiling.kv) == blocks
    assert tiling.warps == blocks[0] // 16


def test_registers_bound_the_blocks_of_small_heads() -> None:
    """By the rule d = 32 has 652 keys to a block; their scores fit into no registers."""
    assert rule(ARCHES["sm_80"], 32, 32, 2).kv == 652
    assert planned(problem__head_dim=32).tiling.kv == 256


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"schedule__tile__kv": 176}, "176 rows wanted, 163 allowed"),
        ({"schedule__tile__q": 144}, "144 rows wanted, 128 allowed"),
        ({"problem__head_dim": 64, "schedule__roles__math__warps": 8}, "128 rows wanted, 64 allowed"),
    ],
    ids=["tile.kv", "tile.q", "warps"],
)
def test_blocks_beyond_the_rule_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message) as refusal:
        planned(**changed)
    assert "largest that fits, the rest held" in str(refusal.value)


def test_rows_that_no_warps_split_are_refused() -> None:
    with pytest.raises(PlanError, match=r"schedule.tile.q is 272; allowed .* what up to 16 warps split"):
        planned(schedule__tile__q=272)


def test_the_backward_does_not_exceed_the_blocks_of_the_spec() -> None:
    tiling = planned("backward", schedule__tile__q=32, schedule__tile__kv=64).tiling
    assert (tiling.q, tiling.kv) == (32, 64)


@pytest.mark.parametrize(("arch", "dim", "stages"), [("sm_90a", 128, 2), ("sm_86", 256, 1)])
def test_the_backward_has_two_stages_where_they_fit(arch: str, dim: int, stages: int) -> None:
    made = planned("backward", arch, problem__head_dim=dim)
    own = {buffer.name: buffer.stages for buffer in made.buffers}
    twice = dict.fromkeys(("q", "dout", "p", "ds"), stages)
    assert own == twice | dict.fromkeys(("k", "v", "out", "stats"), 1)


def test_a_cta_for_each_head() -> None:
    """Of the queries in the forward, of the keys in the backward, whatever the lengths; none without rows."""
    shape, empty = Shape(3, 5000, 700, 8, 2), Shape(3, 0, 700, 8, 2)
    forward, backward = planned(), planned("backward")
    assert launch(forward, shape, 1.0).grid == 24
    assert launch(forward, Shape(3, 5000, 0, 8, 2), 1.0).grid == 24  # writes the zeros
    assert launch(forward, empty, 1.0).grid == 0
    assert [one.grid for one in backward_launches(backward, shape, 1.0)] == [6]
    assert [one.grid for one in backward_launches(backward, empty, 1.0)] == [0]


def test_workspaces_have_whole_blocks_of_every_head() -> None:
    """fp32 O and dQ, with the columns that are multiplied."""
    shape = Shape(3, 500, 700, 8, 2)
    dims: dict[str, Any] = {"problem__head_dim": 72, "problem__head_dim_v": 40}
    forward, backward = planned(**dims), planned("backward", **dims)
    blocks = [-(-500 // one.tiling.q) * one.tiling.q for one in (forward, backward)]
    assert workspaces(forward, shape) == {"o_sum": 4 * 3 * 8 * blocks[0] * 48}
    assert workspaces(backward, shape) == {"dq_sum": 4 * 3 * 8 * blocks[1] * 96}


@pytest.mark.parametrize("direction", PASSES)
def test_one_kernel_for_each_pass(direction: str) -> None:
    (kernel,) = kernels(planned(direction))
    assert kernel.name == direction
    assert kernel.template == f"v1/{direction}.cu.j2"
