"""The planner, with v2: keeps what is given, finds a fitting choice for the rest, refuses with numbers."""

import pytest

from fagen.errors import PlanError
from fagen.hw.arch import ARCHES
from fagen.plan.kernels import main_kernel
from fagen.plan.planner import ROOMY, plan

A100_FA2 = {
    "tile": {"q": 128, "kv": 64},
    "stages": {"kv": 2},
    "roles": {"math": {"warps": 4}},
    "q_operand": "shared",
    "ctas_per_sm": 1,
    "softmax": {"exp2": "hardware", "rescale": "always"},
    "scheduler": "in_order",
}


@pytest.mark.parametrize("arch", ARCHES)
def test_every_arch_plans_every_head_dim(arch: str, v2_spec):
    for head_dim in range(8, 257, 8):
        found = plan(v2_spec(arch, head_dim=head_dim))
        assert all(account.fits for account in found.accounts), (arch, head_dim)
        assert found.dim % 16 == 0 and 0 <= found.dim - head_dim < 16
        assert found.tiling.rows_per_warp in (16, 32)


def test_given_keys_are_kept_and_none_is_planned(v2_spec):
    found = plan(v2_spec(schedule=A100_FA2))
    tiling = found.tiling
    assert (tiling.q, tiling.kv, tiling.warps, tiling.stages, tiling.ctas_per_sm) == (128, 64, 4, 2, 1)
    assert (tiling.q_operand, tiling.lazy_rescale, tiling.scheduler) == ("shared", None, "in_order")
    assert found.planned == ()


@pytest.mark.parametrize(
    "given",
    [
        {"tile": {"q": 96}},
        {"tile": {"kv": 80}},
        {"stages": {"kv": 4}},
        {"roles": {"math": {"warps": 3}}},
        {"q_operand": "registers"},
        {"ctas_per_sm": 3},
    ],
    ids=str,
)
def test_one_given_key_is_kept_and_the_others_are_planned_around_it(given, v2_spec):
    found = plan(v2_spec(schedule=given))
    resolved = {
        "tile": {"q": found.tiling.q, "kv": found.tiling.kv},
        "stages": {"kv": found.tiling.stages},
        "roles": {"math": {"warps": found.tiling.warps}},
        "q_operand": found.tiling.q_operand,
        "ctas_per_sm": found.tiling.ctas_per_sm,
    }
    ((key, value),) = given.items()
    if isinstance(value, dict):
        ((key_below, value),) = value.items()
        resolved, key = resolved[key], key_below
    assert resolved[key] == value
    assert len(found.planned) == 8


def test_causal_runs_the_longest_blocks_first_and_rescales_lazily(v2_spec):
    causal = plan(v2_spec(mask="causal"))
    assert (causal.tiling.scheduler, causal.tiling.lazy_rescale) == ("longest_first", 8.0)
    assert plan(v2_spec()).tiling.scheduler == "in_order"
    assert plan(v2_spec(schedule={"softmax": {"rescale": {"lazy": 0.0}}})).tiling.lazy_rescale == 0.0


def test_exponentials_are_the_exp2_units_unless_the_spec_gives_a_share_away(v2_spec):
    assert plan(v2_spec()).tiling.polynomial == 0
    assert plan(v2_spec(schedule={"softmax": {"exp2": {"polynomial": 0.25}}})).tiling.polynomial == 0.25


def test_planning_is_deterministic(v2_spec):
    assert plan(v2_spec()) == plan(v2_spec())


def test_buffers_tile_shared_memory_without_gap_or_overlap(v2_spec):
    found = plan(v2_spec(schedule=A100_FA2, head_dim=72, head_dim_v=120))
    q, k, v = found.buffers
    assert (q.cols, k.cols, v.cols) == (128, 80, 128)
    assert (q.offset, k.offset, v.offset) == (0, q.bytes, q.bytes + k.bytes)
    assert main_kernel(found).smem_bytes == 128 * 128 * 2 + 2 * 64 * 80 * 2 + 2 * 64 * 128 * 2 + 2 * 16
    assert main_kernel(found).barriers_offset == v.offset + v.bytes
    assert main_kernel(found).smem_bytes == found.accounts[0].used


def test_retarget_to_99_kb_is_refused_with_the_numbers(v2_spec):
    spec = v2_spec(schedule=A100_FA2 | {"roles": {"math": {"warps": 8}}}, head_dim=192)
    assert main_kernel(plan(spec)).smem_bytes == 147_488
    with pytest.raises(PlanError) as refused:
        plan(spec, "sm_89")
    message = str(refused.value)
    assert "t: schedule does not fit sm_89 with tile.q 128, tile.kv 64, roles.math.warps 8" in message
    assert "shared memory per CTA: 147,488 bytes wanted, 101,376 allowed" in message
    assert "schedule.tile.kv: 32 (is 64)" in message


def test_retarget_plans_left_out_keys_for_the_new_arch(v2_spec):
    found = plan(v2_spec("sm_80", device="a100"), "sm_120a")
    assert (found.arch.name, found.device.name) == ("sm_120a", "rtx5090")
    assert main_kernel(found).smem_bytes <= 99 * 1024


def test_nothing_fits_shows_the_choice_that_came_closest(v2_spec):
    with pytest.raises(PlanError, match=r"tile.q 512, tile.kv 32 \(planned\)") as refused:
        plan(v2_spec("sm_89", head_dim=256, schedule={"tile": {"q": 512}}))
    assert "Q tile, O staged through it = Br*bytes*Max(d, dv) = 262,144" in str(refused.value)


def test_query_rows_that_no_warps_split_are_refused(v2_spec):
    with pytest.raises(PlanError, match=r"schedule.tile.q is 272; allowed without roles.math.warps"):
        plan(v2_spec(schedule={"tile": {"q": 272}}))


def test_its_own_choice_leaves_registers_to_schedule_with(v2_spec):
    registers = plan(v2_spec("sm_90a")).accounts[2]
    assert registers.resource == "registers per thread"
    assert registers.used <= ROOMY * registers.allowed
    assert plan(v2_spec("sm_90a", A100_FA2)).accounts[2].used == 252  # what the spec asks for only has to fit


def test_spills_that_the_spec_allows_do_not_refuse_the_plan(v2_spec):
    wide = A100_FA2 | {"tile": {"q": 128, "kv": 96}}
    with pytest.raises(PlanError, match="registers per thread: 284 registers wanted, 255 allowed"):
        plan(v2_spec(schedule=wide))
    spilling = wide | {"allow": ("spills",)}
    assert plan(v2_spec(schedule=spilling)).tiling.kv == 96
    with pytest.raises(PlanError) as refused:
        plan(v2_spec(schedule=spilling | {"stages": {"kv": 3}}))
    assert "registers per thread" not in str(refused.value)
    assert "schedule.stages.kv: 2 (is 3)" in str(refused.value)


def test_a_window_runs_the_longest_blocks_first_too(v2_spec):
    assert plan(v2_spec(mask={"window": (128, 0)})).tiling.scheduler == "longest_first"
    assert plan(v2_spec(mask={"window": (None, None)})).tiling.scheduler == "in_order"


def test_unknown_arch_and_foreign_device_are_refused(v2_spec):
    with pytest.raises(PlanError, match="arch is 'sm_70'; allowed: sm_80"):
        plan(v2_spec(), "sm_70")
    with pytest.raises(PlanError, match="device is 'h100', which is sm_90a; allowed: a100"):
        plan(v2_spec("sm_80", device="h100"))


@pytest.mark.parametrize(
    ("role", "registers", "said"),
    [
        ("math", 160, r"registers is 160; allowed: from 168 with 2 math warpgroups"),
        ("load", 176, r"registers is 176; allowed: up to 168 with 2 math warpgroups"),
    ],
)
def test_setmaxnreg_only_moves_registers_from_load_to_math_warps(v3_spec, role, registers, said):
    roles = {"math": {"warps": 8}} | {role: {"registers": registers}}
    roles["math"]["warps"] = 8
    with pytest.raises(PlanError, match=rf"schedule\.roles\.{role}\.{said}"):
        plan(v3_spec({"tile": {"q": 128, "kv": 64}, "roles": roles}))
