from __future__ import annotations

import pytest

from fagen.bench.case import cases
from fagen.bench.shapes import NamedShape, paper_shapes
from fagen.errors import ArgumentError, PlanError
from fagen.paths import SPECS
from fagen.plan.launch import Shape
from fagen.plan.predict import predict
from fagen.spec.load import load_spec


def test_cases_are_every_shape_in_every_mode(paper_cases):
    todo = paper_cases("h200_fa2.yaml", (1024,), ("fwd", "bwd", "fwd+bwd"))
    assert [(case.mask, case.mode) for case in todo] == [
        (mask, mode) for mask in ("none", "causal") for mode in ("fwd", "bwd", "fwd+bwd")
    ]
    assert {case.spec_name for case in todo} == {"h200_fa2"}
    assert len({case.spec.name for case in todo}) == 2, "two masks"
    assert str(todo[-1]) == "h200_fa2, d128_causal_1024, fwd+bwd"


def test_flops_are_those_of_visible_pairs_and_2_5_times_as_many_in_a_backward(paper_cases):
    for forward, backward, both in zip(
        *[iter(paper_cases("h200_fa2.yaml", (1024,), ("fwd", "bwd", "fwd+bwd")))] * 3, strict=True
    ):
        pairs = 1024 * 1024 if forward.mask == "none" else 1024 * 1025 // 2
        assert forward.flops == 4 * 16 * 16 * pairs * 128
        assert backward.flops == 2.5 * forward.flops
        assert both.flops == forward.flops + backward.flops


def test_models_of_both_passes_add_up(paper_cases):
    forward, backward, both = paper_cases("h200_fa2.yaml", (1024,), ("fwd", "bwd", "fwd+bwd"))[3:]
    assert both.predicted_seconds == pytest.approx(forward.predicted_seconds + backward.predicted_seconds)
    assert both.hbm_bytes == forward.hbm_bytes + backward.hbm_bytes
    assert both.bound == backward.bound, "that takes longer"
    assert forward.predicted_tflops == pytest.approx(predict(forward.plans[0], forward.shape).tflops)
    assert forward.tensor_flops_per_s == pytest.approx(989e12, rel=0.01)


def test_a_window_is_put_in_words(paper_cases):
    (case,) = paper_cases("h200_fa2.yaml", (1024,), ("fwd",), mask={"window": [128, None]})
    assert case.mask == "window [128, null]"


def test_a_shape_that_a_spec_does_not_fit_is_left_out_with_the_reason():
    fits = NamedShape("small", {"problem.head_dim": 128}, Shape(1, 64, 64, 1, 1))
    too_wide = NamedShape("wide", {"problem.head_dim": 256}, Shape(1, 64, 64, 1, 1))
    capped = NamedShape("capped", {"problem.softcap": 50.0}, Shape(1, 64, 64, 1, 1))
    spec = load_spec(SPECS / "h200_fa1.yaml", {"schedule.tile.q": 128, "schedule.tile.kv": 64})
    todo, refused = cases([spec], lambda _: (fits, too_wide, capped), ("fwd",), "sm_90a")
    assert [case.shape_name for case in todo] == ["small"]
    assert [refusal.shape_name for refusal in refused] == ["wide", "capped"]
    assert "does not fit sm_90a" in str(refused[0]) and "\n" not in str(refused[0])
    assert "problem.softcap" in refused[1].reason


def test_a_shape_too_large_to_be_launched_is_left_out_and_the_others_are_not():
    shapes = [NamedShape(name, {}, Shape(1, 64, length, 1, 1)) for name, length in (("a", 64), ("b", 2**31))]
    todo, refused = cases([load_spec(SPECS / "h200_fa2.yaml")], lambda _: shapes, ("fwd", "bwd"), "sm_90a")
    assert {case.shape_name for case in todo} == {"a"} and {refusal.shape_name for refusal in refused} == {
        "b"
    }
    assert all("seqlen_k is 2,147,483,648; allowed" in refusal.reason for refusal in refused)
    for case in todo:
        assert case.predicted_tflops and case.hbm_bytes and case.bound


def test_two_specs_of_one_name_could_not_be_told_apart():
    spec = load_spec(SPECS / "h200_fa2.yaml")
    with pytest.raises(ArgumentError, match="SPEC: h200_fa2 is given twice; allowed: "):
        cases([spec, spec], lambda own: paper_shapes(own, (64,)), ("fwd",), "sm_90a")


def test_a_mode_whose_pass_a_spec_has_not_is_left_out():
    spec = load_spec(SPECS / "h200_fa2.yaml", {"problem.passes": ["forward"]})
    todo, refused = cases([spec], lambda own: paper_shapes(own, (64,)), ("fwd", "bwd"), "sm_90a")
    assert {case.mode for case in todo} == {"fwd"}
    assert {refusal.reason for refusal in refused} == {"problem.passes has no backward, which mode bwd needs"}


def test_a_spec_that_fits_no_shape_is_refused_at_once(paper_cases):
    spec = load_spec(SPECS / "h200_fa2_d256.yaml", {"schedule.stages.kv": 8})
    with pytest.raises(PlanError, match=r"fits none of the shapes, e\.g\. d256_causal_64"):
        cases([spec], lambda own: paper_shapes(own, (64,)), ("fwd",), "sm_90a")
