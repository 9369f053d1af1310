"""What is picked among candidates, and how long that holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from dispatch_cases import HERE, SHAPE

from fagen.dispatch import choose
from fagen.dispatch.candidates import Candidate
from fagen.dispatch.explanation import Explanation
from fagen.dispatch.problem import Request
from fagen.dispatch.target import Target
from fagen.paths import SPECS
from fagen.plan.planner import plan
from fagen.spec.load import load_spec
from fagen.tune.store import Entry, Store, Where, bucket

Requests = Callable[..., Request]


@pytest.fixture(autouse=True)
def on_h200(monkeypatch: pytest.MonkeyPatch, h200: Target, store: Store) -> None:
    monkeypatch.setattr(choose, "_choices", {})
    monkeypatch.setattr(choose, "target_of", lambda device: h200)


def tuned(request: Request, keys: int, direction: str = "forward") -> Entry:
    spec = load_spec(SPECS / "h200_fa3.yaml", {"schedule.tile.kv": keys})
    return Entry(
        problem=request.problem,
        shape=request.shape,
        direction=direction,
        where=HERE,
        spec=spec,
        tiling=plan(spec, direction=direction).tiling,
        seconds=1e-3,
        beat="h200_fa3",
        beat_seconds=1.1e-3,
        asked="",
        rank=1,
        timed=1,
        feasible=1,
    )


def picked(request: Request) -> tuple[str, str]:
    chosen = choose.choice_of(request).chosen
    assert chosen is not None
    return chosen.source, chosen.name


def test_the_fastest_by_the_model(request_for: Requests) -> None:
    choice = choose.choice_of(request_for(mask="causal"))
    assert choice.chosen is not None and choice.chosen.name == "h200_fa3"
    assert choice.why == "predicted fastest"
    fastest = min(one.seconds for one in choice.candidates if not one.refusal)
    assert choice.chosen.seconds <= 1.03 * fastest


def test_hand_picked_before_planned_where_the_model_sees_no_difference(
    request_for: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(**times: float) -> str | None:
        sources: dict[str, Any] = {"a": "shipped", "b": "shipped", "c": "planned"}
        found = tuple(Candidate(name, sources[name], seconds=seconds) for name, seconds in times.items())
        monkeypatch.setattr(choose, "candidates", lambda *_: found)
        monkeypatch.setattr(choose, "_choices", {})
        chosen = choose.choice_of(request_for()).chosen
        return chosen and chosen.name

    assert given(a=1.02, b=1.01, c=1.0) == "b"
    assert given(a=1.02, b=1.05, c=1.0) == "a"
    assert given(a=1.05, b=1.05, c=1.0) == "c"
    assert given() is None


def test_a_tuned_spec_comes_first(request_for: Requests, store: Store) -> None:
    request = request_for(mask="causal")
    store.put(tuned(request, 64))
    assert picked(request) == ("tuned", "h200_fa3__tile_kv_64")
    choice = choose.choice_of(request)
    assert "forward took 1,000.0 us" in choice.why and "h200_fa3 took 1,100.0 us" in choice.why
    other = request_for(replace(SHAPE, seqlen_k=128), mask="causal")
    assert picked(other)[0] == "shipped", "another bucket"


def test_training_prefers_what_was_tuned_for_the_backward(request_for: Requests, store: Store) -> None:
    request = request_for(trains=True, mask="causal")
    store.put(tuned(request, 64))
    store.put(tuned(request, 96, "backward"))
    assert picked(request) == ("tuned", "h200_fa3__tile_kv_96")
    assert picked(replace(request, trains=False)) == ("tuned", "h200_fa3__tile_kv_64")


@pytest.mark.parametrize(
    "change", [{"gpu": "NVIDIA H100"}, {"driver": "1"}, {"nvrtc": "12.9"}, {"headers": "x"}]
)
def test_what_was_tuned_elsewhere_is_not_trusted(
    request_for: Requests, store: Store, change: dict[str, str]
) -> None:
    request = request_for(mask="causal")
    elsewhere: Where = replace(HERE, **change)
    store.put(replace(tuned(request, 64), where=elsewhere))
    assert picked(request)[0] == "shipped"


def test_a_tuned_spec_takes_what_its_pass_does_not_depend_on(request_for: Requests, store: Store) -> None:
    request = request_for(mask="causal")
    store.put(tuned(request, 64))
    ordered = request_for(mask="causal", deterministic=True)
    assert picked(ordered) == ("tuned", "h200_fa3__tile_kv_64__deterministic_true")


def test_a_choice_is_made_once_for_a_bucket(request_for: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = choose.choice_of(request_for())
    monkeypatch.setattr(choose, "_choose", lambda *_: pytest.fail("chosen again"))
    near = replace(SHAPE, seqlen_q=2000, seqlen_k=1900)
    assert bucket(near) == bucket(SHAPE) and choose.choice_of(request_for(near)) is choice


@pytest.mark.parametrize(
    "sizes", [{"seqlen_q": 1}, {"seqlen_k": 0}, {"batch": 0}, {"seqlen_q": 0}, {"heads_q": 64}]
)
def test_every_shape_gets_a_spec(request_for: Requests, sizes: dict[str, int]) -> None:
    assert picked(request_for(replace(SHAPE, **sizes), trains=True))[0] in ("shipped", "planned")


def test_an_explanation_names_all(request_for: Requests, store: Store) -> None:
    request = request_for(mask="causal", softcap=30.0, trains=True)
    explanation = Explanation(choose.choice_of(request), request.shape)
    head, *rest = str(explanation).splitlines()
    text = "\n".join(rest)
    assert head == "fagen.attention on NVIDIA H200 (sm_90a, modelled as h200)"
    assert "bf16, head_dim 128, bshd, mask causal, softcap 30; forward and backward" in text
    assert f"B,Sq,Sk,Hq,Hkv = {SHAPE}" in text
    assert explanation.spec is not None and f"chosen   {explanation.spec.name}: " in text
    for one in explanation.choice.candidates:
        (line,) = (line for line in rest if line.split()[:1] == [one.name])
        assert ("chosen" in line) == (one is explanation.choice.chosen)
        assert f"not eligible: {one.refusal}" in line if one.refusal else "us" in line
