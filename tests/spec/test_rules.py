import pytest

from fagen.hw.arch import ARCHES
from fagen.hw.device import DEVICES
from fagen.spec.load import load_spec
from fagen.spec.rules import check

MINIMAL = {"name": "tiny", "family": "v2", "arch": "sm_80", "problem": {"dtype": "bf16", "head_dim": 64}}


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"])
def test_v2_runs_on_every_arch_from_sm_80(arch: str) -> None:
    assert check(load_spec({**MINIMAL, "arch": arch})) == []


@pytest.mark.parametrize("arch", ARCHES)
def test_wgmma_and_tcgen05_families_are_refused_elsewhere(arch: str) -> None:
    spec = load_spec({**MINIMAL, "arch": arch})
    v3 = [f.key for f in check(spec.model_copy(update={"family": "v3"}))]
    v4 = [f.key for f in check(spec.model_copy(update={"family": "v4"}))]
    assert v3 == ([] if arch == "sm_90a" else ["arch"])
    assert v4 == ([] if arch in ("sm_100a", "sm_103a") else ["arch"])


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


def test_every_schedule_key_can_be_tuned() -> None:
    tune = {
        "tile.q": [64, 128],
        "tile.kv": [32],
        "stages.kv": [2, 3],
        "roles.math.warps": [4, 8],
        "q_operand": ["shared", "registers"],
        "ctas_per_sm": [1, 2],
        "softmax.rescale": ["always", {"lazy": 8}],
        "scheduler": ["in_order", "longest_first"],
        "allow": [[], ["spills"]],
    }
    assert load_spec({**MINIMAL, "tune": tune}).tune["softmax.rescale"] == ("always", {"lazy": 8})
