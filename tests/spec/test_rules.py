import pytest

from fagen.errors import SpecError
from fagen.hw.arch import ARCHES
from fagen.hw.device import DEVICES
from fagen.spec.load import load_spec
from fagen.spec.model import Growth, Schedule, Spec
from fagen.spec.rules import check
from fagen.spec.schema import leaves, schema_of

MINIMAL = {"name": "tiny", "family": "v2", "arch": "sm_80", "problem": {"dtype": "bf16", "head_dim": 64}}


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"])
def test_v2_runs_on_every_arch_from_sm_80(arch: str) -> None:
    assert check(load_spec({**MINIMAL, "arch": arch})) == []


@pytest.mark.parametrize("arch", ARCHES)
def test_the_wgmma_family_is_refused_elsewhere(arch: str) -> None:
    found = check(load_spec({**MINIMAL, "arch": arch}).model_copy(update={"family": "v3"}))
    assert [f.key for f in found] == ([] if arch == "sm_90a" else ["arch"])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("arch", ARCHES)
def test_a_device_goes_with_its_own_arch_only(arch: str, device: str) -> None:
    spec = load_spec({**MINIMAL, "arch": arch}).model_copy(update={"device": device})
    assert [f.key for f in check(spec)] == ([] if DEVICES[device].arch == arch else ["device"])


@pytest.mark.parametrize("warps", [1, 2, 3, 4, 8, 12, 16])
@pytest.mark.parametrize("rows", range(16, 513, 16))
def test_each_warp_owns_16_32_or_64_rows_of_q(rows: int, warps: int) -> None:
    schedule = {"tile": {"q": rows}, "roles": {"math": {"warps": warps}}}
    spec = load_spec(MINIMAL).model_copy(
        update={"schedule": load_spec(MINIMAL).schedule.model_validate(schedule)}
    )
    assert [f.key for f in check(spec)] == ([] if rows / warps in (16, 32, 64) else ["schedule.tile.q"])


def test_a_tile_without_warps_is_left_to_the_planner() -> None:
    assert load_spec({**MINIMAL, "schedule": {"tile": {"q": 48}}}).schedule.tile.q == 48


def test_rules_that_read_an_unknown_key_are_not_asked() -> None:
    spec = load_spec(MINIMAL).model_copy(update={"device": "h200"})
    assert check(spec, unknown={"arch"}) == []
    assert [f.key for f in check(spec, unknown={"problem.dtype"})] == ["device"]


BACKWARD = {
    "backward.tile.q": [64, 128],
    "backward.tile.kv": [64, 128],
    "backward.stages.q": [1, 2],
    "backward.stages.ds": [1, 2],
    "backward.warps.q": [2, 4],
    "backward.warps.kv": [2, 4],
    "backward.warps.dq": [2, 4],
    "backward.ctas_per_sm": [1, 2],
    "backward.scheduler": ["in_order", "longest_first"],
}
TUNE = {
    "v2": {
        **BACKWARD,
        "tile.q": [64, 128],
        "tile.kv": [32],
        "stages.kv": [2, 3],
        "roles.math.warps": [4, 8],
        "q_operand": ["shared", "registers"],
        "ctas_per_sm": [1, 2],
        "softmax.exp2": ["hardware", {"polynomial": 0.25}],
        "softmax.rescale": ["always", {"lazy": 8}],
        "scheduler": ["in_order", "longest_first"],
        "allow": [[], ["spills"]],
    },
    "v3": {
        **BACKWARD,
        "tile.q": [64, 192],
        "tile.kv": [80, 176],
        "stages.q": [1, 2],
        "stages.kv": [2, 3],
        "roles.load.registers": [24, 40],
        "roles.math.warps": [4, 8, 12],
        "roles.math.registers": [160, 240],
        "roles.math.pingpong": [True, False],
        "roles.math.overlap": [True, False],
        "ctas_per_sm": [1],
        "softmax.exp2": ["hardware", {"polynomial": 0.25}],
        "softmax.rescale": ["always", {"lazy": 8}, {"growth": 30}],
        "scheduler": ["in_order", "longest_first", "persistent", "persistent_lpt"],
        "cluster": [1, 2],
        "pack_gqa": [True, False],
        "accumulate.promote_every": [128, 512],
        "allow": [[], ["spills"]],
    },
}


def test_every_schedule_key_can_be_tuned_in_a_family_that_has_it() -> None:
    assert set(TUNE["v2"]) | set(TUNE["v3"]) == set(leaves(schema_of(Schedule)))
    for family, tune in TUNE.items():
        spec = load_spec({**MINIMAL, "family": family, "arch": "sm_90a", "tune": tune})
        assert spec.tune["softmax.rescale"][:2] == ("always", {"lazy": 8})


@pytest.mark.parametrize(("dtype", "most"), [("fp16", 15), ("bf16", 60), ("e4m3", 8), ("e5m2", 8)])
def test_p_may_grow_as_far_as_its_type_reaches(dtype: str, most: int) -> None:
    def load(growth: float) -> Spec:
        problem = {"dtype": dtype, "head_dim": 64, "passes": ["forward"]}
        schedule = {"softmax": {"rescale": {"growth": growth}}}
        return load_spec(
            {"name": "tiny", "family": "v3", "arch": "sm_90a", "problem": problem, "schedule": schedule}
        )

    assert load(most).schedule.softmax.rescale == Growth(growth=most)
    with pytest.raises(SpecError, match=r"softmax\.rescale\.growth: is"):
        load(most + 0.5)


@pytest.mark.parametrize("scheduler", ["in_order", "longest_first", "persistent"])
def test_clusters_go_with_every_scheduler_but_the_counter(scheduler: str) -> None:
    schedule = {"scheduler": scheduler, "cluster": 2}
    spec = load_spec({**MINIMAL, "family": "v3", "arch": "sm_90a", "schedule": schedule})
    assert spec.schedule.cluster == 2


@pytest.mark.parametrize(
    ("mask", "window"),
    [
        ("none", (None, None)),
        ("causal", (None, 0)),
        ({"window": [128, 0]}, (128, 0)),
        ({"window": [None, 3]}, (None, 3)),
        ({"window": [0, None]}, (0, None)),
    ],
    ids=str,
)
@pytest.mark.parametrize("family", ["v2", "v3"])
def test_every_mask_is_a_window(family: str, mask: object, window: tuple[int | None, int | None]) -> None:
    problem = {"dtype": "bf16", "head_dim": 64, "mask": mask}
    spec = load_spec({"name": "tiny", "family": family, "arch": "sm_90a", "problem": problem})
    assert spec.problem.window == window
    assert load_spec(spec) == spec


@pytest.mark.parametrize("warps", [4, 8, 12])
def test_a_math_warpgroup_of_v3_owns_64_rows_of_q(warps: int) -> None:
    for rows in (64, 128, 192):
        schedule = {"tile": {"q": rows}, "roles": {"math": {"warps": warps}}}
        spec = {**MINIMAL, "family": "v3", "arch": "sm_90a", "schedule": schedule}
        if rows == 16 * warps:
            assert load_spec(spec).schedule.tile.q == rows
        else:
            with pytest.raises(SpecError, match=f"does not split into 16 rows; .*: {16 * warps}$"):
                load_spec(spec)


@pytest.mark.parametrize(
    ("problem", "schedule"),
    [
        ({}, {}),
        ({"out_dtype": "fp16", "softcap": 30.0, "head_dim_v": 256}, {"tile": {"kv": 224}}),
        ({"fp8": {"scale": "block"}}, {"tile": {"kv": 64}, "pack_gqa": False}),
        ({"fp8": {"scale": "head"}, "layout": "thd"}, {"tile": {"kv": 96}}),
        ({"v_transposed": True, "layout": "bhsd"}, {"pack_gqa": True}),
        ({}, {"tile": {"kv": 64}, "accumulate": {"promote_every": 192}}),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_8_bit_specs(dtype: str, problem: dict, schedule: dict) -> None:
    problem = {"dtype": dtype, "head_dim": 128, "passes": ["forward"], **problem}
    spec = load_spec(
        {"name": "tiny", "family": "v3", "arch": "sm_90a", "problem": problem, "schedule": schedule}
    ).problem
    assert spec.is_fp8 and spec.dtype_out == problem.get("out_dtype", "bf16")
    assert spec.scales_blocks == (problem.get("fp8") == {"scale": "block"})


def test_out_is_as_q_where_that_has_16_bits() -> None:
    problem = load_spec(MINIMAL).problem
    assert not problem.is_fp8 and not problem.scales_blocks and problem.dtype_out == "bf16"
