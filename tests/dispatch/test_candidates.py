"""Which specs are eligible for a request on a GPU, and what is said of the others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from dispatch_cases import SHAPE, gpu

from fagen.dispatch.candidates import Candidate, candidates
from fagen.dispatch.problem import Request
from fagen.dispatch.target import Target
from fagen.spec.load import load_spec
from fagen.spec.model import NAME_PATTERN

Requests = Callable[..., Request]


def by_name(request: Request, target: Target) -> dict[str, Candidate]:
    found = candidates(request, SHAPE, target)
    assert len({one.name for one in found}) == len(found)
    return {one.name: one for one in found}


def test_hand_picked_specs_take_the_problem(request_for: Requests, h200: Target) -> None:
    request = request_for(head_dim=64, dtype="fp16", layout="bhsd", mask="none")
    found = by_name(request, h200)
    eligible = [one for one in found.values() if not one.refusal]
    assert {"shipped"} <= {one.source for one in eligible}
    for one in eligible:
        assert one.spec is not None
        assert one.spec.problem == request.problem and one.spec.device == "h200"
        assert 0 < one.seconds < math.inf
        assert one.name == one.spec.name and re.match(NAME_PATTERN, one.name)
    shipped = found["h200_fa3_d64__dtype_fp16__layout_bhsd__mask_none"].spec
    assert shipped is not None and shipped.schedule.tile.q == 192


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("h200_fa1", "family v1 is there to be studied and is never picked"),
        ("attention_v1_h200", "family v1 is there to be studied and is never picked"),
        ("a100_fa2", "is for sm_80; this is sm_90a"),
        ("h200_fa3", "its schedule is for head_dim 128; this call has 64"),
        ("h200_fp8_d64", "its schedule is for e4m3; this call has bf16"),
        ("h200_fa3_d192", "its schedule is for head_dim 192, head_dim_v 128; this call has 64"),
    ],
)
def test_the_others_have_a_reason(request_for: Requests, h200: Target, name: str, refusal: str) -> None:
    assert by_name(request_for(head_dim=64, mask="causal"), h200)[name].refusal.startswith(refusal)


def test_what_a_family_does_not_compute(request_for: Requests, h200: Target) -> None:
    found = by_name(request_for(mask="causal", dropout=True), h200)
    assert found["h200_fa3"].refusal == "problem.dropout is true; allowed for family v3: false"
    assert {one.spec.family for one in found.values() if one.spec and not one.refusal} == {"v2"}


def test_the_same_kernels_are_a_candidate_once(request_for: Requests, h200: Target) -> None:
    found = by_name(request_for(mask="causal"), h200)
    assert not found["h200_fa3"].refusal
    assert found["h100_fa3__device_h200"].refusal == "the same kernels as h200_fa3"


def test_specs_are_planned_for_the_gpu_at_hand(request_for: Requests) -> None:
    found = by_name(request_for(mask="causal"), gpu("h100"))
    assert not found["h100_fa3"].refusal
    assert found["h200_fa3__device_h100"].refusal == "the same kernels as h100_fa3"
    assert {one.spec.device for one in found.values() if one.spec} == {"h100"}


def test_a_damaged_calibration_is_told_of_once_and_ignored(
    request_for: Requests,
    h200: Target,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = by_name(request_for(), h200)
    monkeypatch.setenv("FAGEN_CACHE_DIR", str(tmp_path))
    (tmp_path / "calibration").mkdir()
    (tmp_path / "calibration" / "nvidia-h200.json").write_text("{")
    assert by_name(request_for(), h200) == expected
    assert len(caplog.messages) == 1 and "nvidia-h200.json ignored" in caplog.text


def test_a_gpu_without_specs_of_its_own_has_planned_ones(request_for: Requests) -> None:
    found = by_name(request_for(), gpu("b200"))
    assert [one.name for one in found.values() if not one.refusal] == ["attention_v2_b200"]
    assert "family v3 is for sm_90a; this is sm_100a" in found["attention_v3_b200"].refusal


def test_a_planned_spec_has_a_name_for_each_problem(request_for: Requests, h200: Target) -> None:
    problems = [{"head_dim": 40}, {"mask": {"window": (8, 0)}}, {"mask": {"window": (80, 0)}}]
    names = [
        [
            one.name
            for one in by_name(request_for(**problem), h200).values()
            if one.source == "planned" and one.spec
        ]
        for problem in problems
        for _ in "ab"
    ]
    assert names[::2] == names[1::2]
    assert len({name for one in names for name in one}) == 2 * len(problems)
    assert names[0] == ["attention_v2_h200__head_dim_40", "attention_v3_h200__head_dim_40"]


def test_what_does_not_fit_says_so(
    request_for: Requests, h200: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {"name": "large", "family": "v2", "arch": "sm_90a", "problem": {"dtype": "bf16", "head_dim": 128}}
    spec = load_spec(large | {"schedule": {"tile": {"q": 512, "kv": 256}}})
    monkeypatch.setattr("fagen.dispatch.candidates.shipped_specs", lambda: (spec,))
    assert "schedule does not fit sm_90a" in by_name(request_for(softcap=9.0), h200)["large"].refusal
