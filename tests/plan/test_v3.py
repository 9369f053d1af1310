"""The v3 plan: what ptxas builds without spills fits, what spills does not, and what is left open."""

from typing import Any

import pytest

from fagen.errors import PlanError
from fagen.paths import SPECS
from fagen.plan.ir import Plan
from fagen.plan.kernels import main_kernel
from fagen.plan.planner import plan
from fagen.plan.v3_budget import REGISTER_FILE, REGISTERS
from fagen.spec.load import load_spec

# (head_dim, head_dim_v, Br, Bc, registers wanted and allowed, bytes): ptxas of NVRTC 13.5 builds these with
# overlap and without spills.
WITHOUT_SPILLS = [
    (64, 64, 192, 128, 154, 160, 139_376),
    (96, 96, 192, 112, 158, 160, 196_720),
    (128, 128, 128, 128, 186, 240, 229_488),
    (128, 128, 128, 160, 210, 240, 229_488),
    (128, 128, 128, 176, 222, 240, 213_080),
    (192, 128, 128, 112, 174, 240, 225_368),
    (192, 128, 128, 128, 186, 240, 213_080),
    (256, 256, 128, 80, 214, 240, 229_464),
]
# (head_dim, Br, Bc, registers wanted and allowed): these it spills, d = 64 with 160 and d = 96 with 128 keys
# without overlap as well: P never takes over the registers of S.
WITH_SPILLS = [
    (64, 192, 144, 166, 160),
    (64, 192, 160, 178, 160),
    (64, 128, 256, 250, 240),
    (96, 192, 128, 170, 160),
    (128, 192, 96, 162, 160),
]
OVERLAP = pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "in sequence"])


def used(found: Plan, resource: str) -> tuple[int, int]:
    account = next(a for a in found.accounts if a.resource == resource)
    return account.used, account.allowed


def tile(q: int, kv: int, overlap: bool) -> dict[str, Any]:
    return {"tile": {"q": q, "kv": kv}, "roles": {"math": {"overlap": overlap}}}


@OVERLAP
@pytest.mark.parametrize("fact", WITHOUT_SPILLS, ids=str)
def test_what_ptxas_builds_without_spills_fits(fact, overlap, v3_spec):
    dim, dim_v, q, kv, wanted, allowed, smem = fact
    found = plan(v3_spec(tile(q, kv, overlap), head_dim=dim, head_dim_v=dim_v))
    assert (found.dim, found.dim_v, found.tiling.overlap) == (dim, dim_v, overlap)
    assert used(found, REGISTERS) == (wanted, allowed)
    assert main_kernel(found).smem_bytes == found.accounts[0].used == smem <= 227 * 1024


@OVERLAP
@pytest.mark.parametrize("fact", WITH_SPILLS, ids=str)
def test_what_ptxas_spills_is_refused(fact, overlap, v3_spec):
    dim, q, kv, wanted, allowed = fact
    with pytest.raises(PlanError, match=f"{REGISTERS}: {wanted} registers wanted, {allowed} allowed"):
        plan(v3_spec(tile(q, kv, overlap), head_dim=dim))


@pytest.mark.parametrize(
    ("dims", "q", "kv", "messages"),
    [
        (
            (128, 128),
            128,
            208,
            [
                "shared memory per CTA: 245,848 bytes wanted, 232,448 allowed",
                "registers per math thread: 246 registers wanted, 240 allowed",
                "schedule.tile.kv: 192 (is 208)",
            ],
        ),
        ((192, 128), 128, 144, ["shared memory per CTA: 233,560 bytes wanted, 232,448 allowed"]),
        (
            (256, 256),
            128,
            96,
            [
                "shared memory per CTA: 262,232 bytes wanted, 232,448 allowed",
                "Q tiles = Br*bytes*d*q_stages = 65,536",
                "K ring = Bc*bytes*d*stages = 98,304",
                "schedule.tile.q: 64 (is 128)",
                "schedule.tile.kv: 80 (is 96)",
            ],
        ),
    ],
    ids=str,
)
def test_larger_tiles_are_refused_with_the_numbers(dims, q, kv, messages, v3_spec):
    with pytest.raises(PlanError) as refused:
        plan(v3_spec({"tile": {"q": q, "kv": kv}}, head_dim=dims[0], head_dim_v=dims[1]))
    for message in messages:
        assert message in str(refused.value)


@pytest.mark.parametrize(
    ("kv", "stages", "q_stages", "own_o"),
    [
        (128, {}, 2, True),
        (160, {}, 2, False),
        (160, {"q": 1}, 1, True),
        (176, {}, 1, False),
    ],
    ids=str,
)
def test_the_next_q_comes_early_then_o_has_its_own_buffer_where_there_is_room(
    kv, stages, q_stages, own_o, v3_spec
):
    tiling = plan(v3_spec({"tile": {"q": 128, "kv": kv}, "stages": stages})).tiling
    assert (tiling.q_stages, tiling.own_o, tiling.stages) == (q_stages, own_o, 2)


@pytest.mark.parametrize(
    ("name", "stages", "own_o", "pingpong"),
    [
        ("h200_fa3", (2, 2), True, True),
        ("h200_fa3_d64", (2, 3), True, True),
        ("h200_fa3_d64_short", (2, 3), True, False),
        ("h200_fa3_d96", (2, 2), True, True),
        ("h200_fa3_d192", (2, 2), False, True),
        ("h200_fa3_d256", (1, 2), False, True),
    ],
)
def test_shipped_specs_have_the_stages_that_fit(name, stages, own_o, pingpong):
    tiling = plan(load_spec(SPECS / f"{name}.yaml")).tiling
    assert ((tiling.q_stages, tiling.stages), tiling.own_o) == (stages, own_o)
    assert (tiling.overlap, tiling.pingpong, tiling.growth) == (True, pingpong, 30)
    assert tiling.scheduler == "persistent_lpt"


# Those that measured fastest on an H200 under a causal mask.
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize(
    ("dim", "tile", "q_stages"),
    [(64, (192, 128), 2), (96, (128, 128), 2), (128, (128, 128), 2), (192, (128, 80), 2)],
)
def test_tiles_left_open_are_the_fastest(dim, tile, q_stages, mask, v3_spec):
    tiling = plan(v3_spec(device="h200", head_dim=dim, mask=mask)).tiling
    assert ((tiling.q, tiling.kv), tiling.q_stages) == (tile, q_stages)


def test_two_q_tiles_that_do_not_fit_are_refused(v3_spec):
    with pytest.raises(PlanError, match=r"schedule.stages.q: 1 \(is 2\)|Q tiles"):
        plan(v3_spec({"tile": {"q": 128, "kv": 176}, "stages": {"q": 2}}))


def test_registers_beyond_what_the_cta_starts_with_are_refused(v3_spec):
    three = {"tile": {"q": 192, "kv": 64}, "roles": {"load": {"registers": 40}, "math": {"registers": 160}}}
    with pytest.raises(PlanError) as refused:
        plan(v3_spec(three, head_dim=64))
    assert f"{REGISTER_FILE}: 66,560 registers wanted, 65,536 allowed" in str(refused.value)
    assert "schedule.roles.load.registers: 32 (is 40)" in str(refused.value)
    assert "schedule.roles.math.registers: 152 (is 160)" in str(refused.value)


@pytest.mark.parametrize(
    ("q", "roles", "registers"),
    [
        (64, {}, (24, 240)),
        (128, {}, (24, 240)),
        (192, {}, (32, 160)),
        (128, {"load": {"registers": 40}}, (40, 232)),
        (192, {"load": {"registers": 56}}, (56, 152)),
        (128, {"math": {"registers": 200}}, (24, 200)),
    ],
    ids=str,
)
def test_what_the_load_warps_leave_goes_to_the_math_warps(q, roles, registers, v3_spec):
    found = plan(v3_spec({"tile": {"q": q, "kv": 64}, "roles": roles}))
    tiling = found.tiling
    assert (tiling.load_registers, tiling.math_registers) == registers
    assert used(found, REGISTER_FILE)[0] <= used(found, REGISTER_FILE)[1] <= 65_536
    assert tiling.threads == 128 + 2 * q


def test_every_head_dim_has_a_plan(v3_spec):
    for head_dim in range(8, 257, 8):
        for mask in ("none", "causal"):
            found = plan(v3_spec(head_dim=head_dim, mask=mask))
            assert all(account.fits for account in found.accounts), head_dim
            assert found.dim >= head_dim and found.dim in range(64, 257, 32)
            assert found.tiling.q == 16 * found.tiling.warps


def test_queries_and_values_are_padded_each_on_their_own(v3_spec):
    found = plan(v3_spec(head_dim=136, head_dim_v=72))
    assert (found.dim, found.dim_v) == (160, 96)


@pytest.mark.parametrize(
    ("mask", "cluster", "scheduler"),
    [
        ("none", None, "persistent"),
        ("causal", None, "persistent_lpt"),
        ({"window": (128, 0)}, 1, "persistent_lpt"),
        ({"window": (None, None)}, None, "persistent"),
        ("causal", 2, "persistent"),
    ],
    ids=str,
)
def test_the_longest_go_first_under_a_mask_but_for_clusters(mask, cluster, scheduler, v3_spec):
    tiling = plan(v3_spec({"cluster": cluster}, mask=mask)).tiling
    assert tiling.scheduler == scheduler
    assert tiling.has_counters == (scheduler == "persistent_lpt")


@pytest.mark.parametrize(("dtype", "growth"), [("bf16", 30), ("fp16", 15)])
def test_keys_left_out_are_chosen(dtype, growth, v3_spec):
    found = plan(v3_spec(dtype=dtype))
    tiling = found.tiling
    assert (tiling.cluster, tiling.polynomial, tiling.pack_gqa) == (1, 0.0, False)
    assert (tiling.growth, tiling.lazy_rescale, tiling.rescales) == (growth, None, False)
    assert (tiling.overlap, tiling.pingpong, tiling.ctas_per_sm) == (True, tiling.warps > 4, 1)
    assert len(found.planned) == 15


@pytest.mark.parametrize(
    ("given", "lazy", "growth", "rescales"),
    [
        ("always", None, None, True),
        ({"lazy": 0}, 0, None, False),
        ({"growth": 0}, None, 0, False),
        ({"growth": 60}, None, 60, False),
    ],
    ids=str,
)
def test_a_rule_of_rescaling_is_kept(given, lazy, growth, rescales, v3_spec):
    tiling = plan(v3_spec({"softmax": {"rescale": given}})).tiling
    assert (tiling.lazy_rescale, tiling.growth, tiling.rescales) == (lazy, growth, rescales)


def test_keys_given_are_kept(v3_spec):
    schedule = {
        "tile": {"q": 192, "kv": 80},
        "stages": {"q": 1, "kv": 3},
        "roles": {
            "load": {"registers": 40},
            "math": {"warps": 12, "registers": 152, "pingpong": False, "overlap": False},
        },
        "ctas_per_sm": 1,
        "softmax": {"exp2": {"polynomial": 0.25}, "rescale": {"lazy": 8}},
        "scheduler": "longest_first",
        "cluster": 2,
        "pack_gqa": True,
    }
    found = plan(v3_spec(schedule, head_dim=64))
    tiling = found.tiling
    assert found.planned == ()
    assert (tiling.q, tiling.kv, tiling.q_stages, tiling.stages, tiling.warps) == (192, 80, 1, 3, 12)
    assert (tiling.load_registers, tiling.math_registers) == (40, 152)
    assert (tiling.pingpong, tiling.overlap, tiling.polynomial, tiling.lazy_rescale) == (
        False,
        False,
        0.25,
        8,
    )
    assert (tiling.scheduler, tiling.cluster, tiling.pack_gqa) == ("longest_first", 2, True)


@pytest.mark.parametrize("key", ["pingpong", "overlap"])
@pytest.mark.parametrize("value", [True, False])
def test_one_key_of_the_math_role_is_kept_and_the_others_are_planned_around_it(key, value, v3_spec):
    found = plan(v3_spec({"roles": {"math": {key: value}}}))
    assert getattr(found.tiling, key) is value
    assert len(found.planned) == 14


def test_a_warpgroup_alone_has_no_turns_to_wait_for(v3_spec):
    assert not plan(v3_spec({"tile": {"q": 64}})).tiling.pingpong
    assert plan(v3_spec({"roles": {"math": {"pingpong": True}}}, head_dim=256)).tiling.warps > 4


def test_buffers_tile_shared_memory_without_gap_or_overlap(v3_spec):
    found = plan(v3_spec({"tile": {"q": 128, "kv": 96}}, head_dim=72, head_dim_v=128))
    q, k, v, o = found.buffers
    assert [(b.name, b.rows, b.cols, b.stages) for b in found.buffers] == [
        ("q", 128, 96, 2),
        ("k", 96, 96, 2),
        ("v", 96, 128, 2),
        ("o", 128, 128, 1),
    ]
    assert [b.bytes for b in found.buffers] == [2 * b.rows * b.cols * b.stages for b in found.buffers]
    assert (q.offset, k.offset, v.offset) == (0, q.bytes, q.bytes + k.bytes)
    assert o.offset == v.offset + v.bytes
    assert main_kernel(found).barriers_offset == o.offset + o.bytes
    assert main_kernel(found).smem_bytes == main_kernel(found).barriers_offset + 8 * (3 * 2 + 4 * 2)
    assert all(buffer.offset % 1024 == 0 for buffer in found.buffers)


@pytest.mark.parametrize(("dims", "kv", "q_stages"), [((192, 128), 128, 1), ((64, 256), 112, 2)], ids=str)
def test_without_a_buffer_of_its_own_o_takes_no_shared_memory(dims, kv, q_stages, v3_spec):
    found = plan(v3_spec({"tile": {"q": 128, "kv": kv}}, head_dim=dims[0], head_dim_v=dims[1]))
    q, k, v = found.buffers
    assert (found.tiling.own_o, found.tiling.q_stages) == (False, q_stages)
    assert q.bytes == 128 * dims[0] * 2 * q_stages
    assert main_kernel(found).barriers_offset == v.offset + v.bytes == q.bytes + k.bytes + v.bytes
    assert "O" not in "".join(term.name for term in found.accounts[0].terms)


@pytest.mark.parametrize("kv", [128, 176])
def test_every_stage_has_a_full_and_an_empty_barrier(kv, v3_spec):
    found = plan(v3_spec({"tile": {"q": 128, "kv": kv}}))
    stages = {barrier.name: barrier.stages for barrier in found.barriers}
    assert list(stages) == ["q_full", "q_empty", "k_full", "k_empty", "v_full", "v_empty", "item"]
    for name, count in stages.items():
        assert count == (found.tiling.stages if name[0] in "kv" else found.tiling.q_stages)


def test_spills_that_the_spec_allows_do_not_refuse_the_plan(v3_spec):
    wide = {"tile": {"q": 192, "kv": 128}}
    with pytest.raises(PlanError, match="registers per math thread"):
        plan(v3_spec(wide, head_dim=96))
    assert plan(v3_spec(wide | {"allow": ("spills",)}, head_dim=96)).tiling.kv == 128


def test_no_other_arch_has_the_family(v3_spec):
    with pytest.raises(PlanError, match="family is 'v3'; allowed on sm_100a: v1, v2, v4"):
        plan(v3_spec(), "sm_100a")


def test_planning_is_deterministic(v3_spec):
    assert plan(v3_spec()) == plan(v3_spec())
