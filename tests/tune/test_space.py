"""The search space: what is in it, what is refused and why, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fagen.errors import TuneError
from fagen.plan.efficiency import SHIPPED, V3_FORWARD
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import predict
from fagen.spec.load import load_spec
from fagen.spec.model import Spec
from fagen.tune import forecast
from fagen.tune.rank import in_order_of_trial, rankings, to_be_timed
from fagen.tune.space import MOST, Space, space

MHA = Shape(2, 512, 512, 4, 4)
GROUPS_OF_3, GROUPS_OF_4 = Shape(2, 512, 512, 6, 2), Shape(2, 512, 512, 8, 2)


def v2(head_dim: int = 256, schedule: dict[str, Any] | None = None, **tune: list[Any]) -> Spec:
    return load_spec(
        {
            "name": "a",
            "family": "v2",
            "arch": "sm_90a",
            "problem": {"dtype": "bf16", "head_dim": head_dim},
            "schedule": schedule or {},
            "tune": {key.replace("__", "."): values for key, values in tune.items()},
        }
    )


def of(spec: Spec, direction: str = "forward", arch: str = "sm_90a") -> Space:
    return space({"a": spec}, direction, arch)


def test_all_combinations_and_the_spec_as_it_stands_before_them(mine) -> None:
    spec = mine(tune={"tile.q": [64, 128], "tile.kv": [64, 128]})
    variants = of(spec).variants
    # As it stands it has tile 128 x 128, so that choice is not there again.
    assert [dict(variant.choice) for variant in variants] == [
        {},
        {"tile.q": 64, "tile.kv": 64},
        {"tile.q": 64, "tile.kv": 128},
        {"tile.q": 128, "tile.kv": 64},
    ]
    assert [(v.plan.tiling.q, v.plan.tiling.kv) for v in variants] == [
        (128, 128),
        (64, 64),
        (64, 128),
        (128, 64),
    ]
    assert len({variant.spec.name for variant in variants}) == 4
    assert all(not variant.spec.tune for variant in variants)


def test_a_forced_candidate_that_does_not_fit_is_refused_with_bytes_wanted_and_allowed() -> None:
    spec = v2(tile__q=[128, 256], tile__kv=[48, 256], stages__kv=[2, 4])
    for direction, wanted in (("forward", "1,179,712"), ("backward", None)):
        found = of(spec, direction)
        assert found.variants
        why = dict(found.refused).get("a, tile.q 256, tile.kv 256, stages.kv 4")
        if direction == "backward":
            assert why is None  # those keys are the forward's
        else:
            assert why and f"shared memory per CTA: {wanted} bytes wanted, 232,448 allowed" in why


def test_no_candidate_left_is_an_error_with_both_numbers() -> None:
    spec = v2(schedule={"tile": {"q": 256, "kv": 256}}, stages__kv=[4])
    with pytest.raises(TuneError) as error:
        of(spec)
    assert "no variant of the forward can run on sm_90a" in str(error.value)
    assert "1,179,712 bytes wanted, 232,448 allowed" in str(error.value)


def test_a_choice_that_breaks_a_rule_is_refused_with_the_rule(mine) -> None:
    spec = mine(tune={"tile.q": [64, 128], "roles.math.pingpong": [True], "cluster": [1, 2],
                      "scheduler": ["persistent_lpt"]})  # fmt: skip
    found = of(spec)
    refused = dict(found.refused)
    assert (
        "one math warpgroup"
        in refused["a, tile.q 64, roles.math.pingpong true, cluster 1, scheduler persistent_lpt"]
    )
    assert (
        "schedule.cluster: 2"
        in refused["a, tile.q 128, roles.math.pingpong true, cluster 2, scheduler persistent_lpt"]
    )
    assert len(found.variants) == 1  # as it stands, which is the only sound choice, too


def test_each_pass_has_its_own_lists() -> None:
    spec = v2(64, tile__kv=[32, 64], backward__tile__kv=[64, 128])
    assert {key for variant in of(spec).variants for key in variant.choice} <= {"tile.kv"}
    assert {key for variant in of(spec, "backward").variants for key in variant.choice} <= {
        "backward.tile.kv"
    }


def test_a_pinned_configuration_is_the_only_variant_and_used_exactly(mine) -> None:
    spec = mine(tune={}, schedule={"tile": {"q": 64, "kv": 80}, "stages": {"q": 2, "kv": 3}})
    (variant,) = of(spec).variants
    tiling = variant.plan.tiling
    assert (tiling.q, tiling.kv, tiling.q_stages, tiling.stages) == (64, 80, 2, 3)
    assert variant.spec == spec and variant.as_it_stands


def test_a_pinned_key_stays_beside_those_that_are_tuned(mine) -> None:
    spec = mine(tune={"tile.kv": [64, 96]}, schedule={"tile": {"q": 64}, "stages": {"kv": 4}})
    assert {(v.plan.tiling.q, v.plan.tiling.stages) for v in of(spec).variants} == {(64, 4)}


def test_too_many_choices_are_refused_before_any_is_planned(mine) -> None:
    many = {"tile.kv": list(range(16, 257, 16)), "roles.math.registers": list(range(24, 241, 8)),
            "softmax.rescale": [{"growth": n} for n in range(60)]}  # fmt: skip
    with pytest.raises(TuneError, match=f"tune has 26,880 choices .* allowed: up to {MOST:,}"):
        of(mine(tune=many))


def test_a_spec_of_another_arch_is_planned_for_this_one() -> None:
    spec = load_spec({"name": "a", "family": "v2", "arch": "sm_80", "device": "a100",
                      "problem": {"dtype": "bf16", "head_dim": 64}})  # fmt: skip
    (variant,) = of(spec).variants
    assert variant.spec.arch == variant.plan.arch.name == "sm_90a"


def test_a_family_that_the_arch_cannot_run_is_an_error(mine) -> None:
    with pytest.raises(TuneError, match="allowed for family v3: sm_90a"):
        space({"a": mine()}, "forward", "sm_80")


def test_values_that_are_mappings_are_laid_over_what_the_spec_has(mine) -> None:
    spec = mine(
        schedule={"softmax": {"rescale": {"lazy": 8.0}}},
        tune={"softmax.rescale": ["always", {"growth": 20}]},
    )
    tilings = [variant.plan.tiling for variant in of(spec).variants]
    assert [(t.lazy_rescale, t.growth) for t in tilings] == [(8.0, None), (None, None), (None, 20.0)]


def test_the_fastest_by_prediction_go_first_and_specs_as_they_stand_are_tried_before(mine) -> None:
    (ranked,) = rankings([(of(mine()), MHA)], SHIPPED)
    predicted = [entrant.predicted for entrant in ranked.entrants]
    assert predicted == sorted(predicted)
    first, *others = in_order_of_trial(ranked.entrants)
    assert first.variant.as_it_stands
    assert [entrant.predicted for entrant in others] == sorted(entrant.predicted for entrant in others)


@pytest.mark.parametrize("many", [1, 1000])  # by all CPUs, by this one
def test_what_cannot_run_on_a_shape_is_refused_for_it(mine, many: int) -> None:
    among = of(mine(tune={"pack_gqa": [False, True]}))
    ranked = rankings([(among, GROUPS_OF_3), (among, GROUPS_OF_4)], SHIPPED, many=many)
    packed = [[entrant.variant.plan.tiling.pack_gqa for entrant in one.entrants] for one in ranked]
    assert packed[0] == [False] and sorted(packed[1]) == [False, True]
    ((choice, why),) = ranked[0].refused
    assert choice == "a, pack_gqa true" and "3 query heads share" in why
    assert not ranked[1].refused


def test_packing_groups_of_one_is_not_tried_beside_not_packing_them(mine) -> None:
    (ranked,) = rankings([(of(mine(tune={"pack_gqa": [False, True]})), MHA)], SHIPPED)
    assert [entrant.variant.plan.tiling.pack_gqa for entrant in ranked.entrants] == [False]
    pinned = mine(schedule={"pack_gqa": True}, tune={})
    assert len(rankings([(of(pinned), MHA)], SHIPPED)[0].entrants) == 1  # it is what the spec says


@pytest.mark.parametrize(("feasible", "timed"), [(1, 1), (5, 5), (6, 5), (29, 5), (30, 6), (344, 68)])
def test_five_or_a_fifth_are_timed(feasible: int, timed: int) -> None:
    assert to_be_timed(feasible) == timed
    assert to_be_timed(feasible, exhaustive=True) == feasible


def test_variants_of_the_same_name_are_the_same_kernels(mine) -> None:
    by_key = {variant.key: variant for variant in of(mine()).variants}
    for variant in by_key.values():
        assert plan(load_spec(variant.spec.model_dump(exclude_unset=True))).tiling == variant.plan.tiling


def test_reasons_are_the_same_for_the_same_thing_whatever_the_variant_is_named() -> None:
    spec = v2(64, backward__tile__kv=[64], backward__warps__q=[4], backward__warps__kv=[8],
              backward__ctas_per_sm=[1, 2])  # fmt: skip
    refused = of(spec, "backward").refused
    assert len(refused) > 1
    assert not any("a__" in why for _, why in refused)


def test_a_calibration_decides_the_order(mine) -> None:
    slow = {"v3 forward": replace(V3_FORWARD, launch=1.0)}
    (as_shipped,), (calibrated,) = (rankings([(of(mine()), MHA)], own) for own in (SHIPPED, slow))
    assert calibrated.entrants[0].predicted > 1 > as_shipped.entrants[0].predicted


@pytest.mark.parametrize(
    ("cpus", "many", "started"), [(32, 50, 3), (2, 50, 2), (1, 50, 0), (32, 100, 0), (32, 1000, 0)]
)
def test_each_process_has_plans_enough_to_be_worth_its_start(mine, monkeypatch, cpus, many, started) -> None:
    made: list[float] = []

    class Here:
        """Not a process."""

        def __init__(self, patience: float):
            made.append(patience)

        def call(self, function: Callable[..., object], *args: object) -> object:
            return function(*args)

        def close(self) -> None: ...

    monkeypatch.setattr(forecast, "Process", Here)
    monkeypatch.setattr(forecast.os, "sched_getaffinity", lambda _: range(cpus))
    plans = [plan(mine(tune={}))] * 50
    found = forecast.forecasts([(plans, MHA)] * 3, SHIPPED, lambda count: None, many)
    assert len(made) == started
    assert found == [[predict(plans[0], MHA, SHIPPED).seconds] * 50] * 3


def test_a_process_that_ends_while_it_predicts_is_an_error_of_tuning(
    mine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast.os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(forecast, "PATIENCE", 0.0)
    with pytest.raises(TuneError, match=r"predicting: what was to do it gave no sign of life"):
        rankings([(of(mine()), GROUPS_OF_4)], SHIPPED, many=1)
