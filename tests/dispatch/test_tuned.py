"""Which calls get a shipped winner: those that it was tuned for, on its device, and no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dispatch_cases import HERE, gpu

from fagen.bench.shapes import NamedShape, read_shapes
from fagen.dispatch import choose, tuned
from fagen.dispatch.candidates import Candidate
from fagen.dispatch.explanation import Explanation
from fagen.dispatch.problem import Request
from fagen.dispatch.shipped import MODELS, Winner, winners
from fagen.dispatch.target import Target
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec
from fagen.spec.model import Spec
from fagen.tune.store import Entry, Store, bucket
from fagen.tune.tuned import tuned_name

Requests = Callable[..., Request]
Ship = Callable[..., Spec]

SHAPES = {named.name: named.shape for named in read_shapes(MODELS)}
TRAIN = SHAPES["llama3_8b_train_8k"]  # causal, head_dim 128
WINNER = "h200_fa3_tuned_llama3_8b_train_8k"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, h200: Target, store: Store) -> Path:
    """Takes the place of specs/tuned: nothing yet."""
    made = tmp_path / "shipped"
    made.mkdir()
    winners.cache_clear()
    monkeypatch.setattr(tuned, "winners", lambda: winners(made))
    monkeypatch.setattr(choose, "_choices", {})
    monkeypatch.setattr(choose, "target_of", lambda device: h200)
    return made


@pytest.fixture
def ship(folder: Path) -> Ship:
    """Ships a spec tuned for a shape of the models, of a tile that nobody else would pick."""

    def made(shape: str = "llama3_8b_train_8k", keys: int = 48, **problem: Any) -> Spec:
        name = tuned_name("h200_fa3", shape)
        problem = {"dtype": "bf16", "head_dim": 128, "mask": "causal", **problem}
        schedule = {"tile": {"q": 128, "kv": keys}}
        head = {"name": name, "family": "v3", "arch": "sm_90a", "device": "h200"}
        spec = load_spec({**head, "problem": problem, "schedule": schedule})
        (folder / f"{name}.yaml").write_text(spec.model_dump_json(exclude_unset=True))  # JSON is YAML
        return spec

    return made


def chosen(request: Request) -> Candidate:
    found = choose.choice_of(request).chosen
    assert found is not None
    return found


@pytest.mark.parametrize("trains", [False, True])
def test_the_call_that_it_was_tuned_for(request_for: Requests, ship: Ship, trains: bool) -> None:
    spec = ship()
    request = request_for(TRAIN, trains=trains, mask="causal")
    found = chosen(request)
    assert (found.source, found.name) == ("shipped", WINNER)
    assert found.spec is not None and found.spec.schedule == spec.schedule
    why = "tuned for llama3_8b_train_8k (B,Sq,Sk,Hq,Hkv = 2,8192,8192,32,8) on h200"
    text = str(Explanation(choose.choice_of(request), request.shape))
    assert f"chosen   {WINNER}: {why}" in text
    assert f"{WINNER} " in text and "shipped" in text


def test_all_shapes_of_its_bucket(request_for: Requests, ship: Ship) -> None:
    ship()
    near = Shape(1, 8000, 7500, 64, 16)
    assert bucket(near) == bucket(TRAIN)
    assert chosen(request_for(near, mask="causal")).name == WINNER


@pytest.mark.parametrize(
    "other",
    [
        {"mask": "none"},
        {"mask": (4096, 0)},
        {"dtype": "fp16"},
        {"layout": "bhsd"},
        {"softcap": 50.0},
        {"shape": replace(TRAIN, seqlen_q=2048)},
        {"shape": replace(TRAIN, seqlen_k=1024)},
        {"shape": replace(TRAIN, batch=8)},
        {"shape": replace(TRAIN, heads_kv=32)},
        {"deterministic": True, "trains": True},
    ],
    ids=str,
)
def test_no_other_call(request_for: Requests, ship: Ship, other: dict[str, Any]) -> None:
    ship()
    window = {"mask": {"window": other["mask"]}} if isinstance(other.get("mask"), tuple) else {}
    request = request_for(**{"shape": TRAIN, "mask": "causal"} | other | window)
    choice = choose.choice_of(request)
    assert not any(one.name.startswith(WINNER) for one in choice.candidates)
    assert choice.why in ("predicted fastest", "the only one eligible")


def test_a_forward_does_not_depend_on_the_backwards_order(request_for: Requests, ship: Ship) -> None:
    ship()
    assert chosen(request_for(TRAIN, mask="causal", deterministic=True)).name.startswith(WINNER)


def test_a_spec_without_a_backward_is_no_winner_of_training(request_for: Requests, ship: Ship) -> None:
    ship(passes=["forward"])
    assert chosen(request_for(TRAIN, mask="causal", trains=True)).name != WINNER
    assert chosen(request_for(TRAIN, mask="causal")).name.startswith(WINNER)


def test_another_device_is_told(request_for: Requests, ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    ship()
    monkeypatch.setattr(choose, "target_of", lambda device: gpu("h100"))
    request = request_for(TRAIN, mask="causal")
    assert chosen(request).name == "h100_fa3"
    text = str(Explanation(choose.choice_of(request), request.shape))
    (line,) = (line for line in text.splitlines() if line.split()[:1] == [WINNER])
    assert "not eligible: tuned for llama3_8b_train_8k" in line and line.endswith("on h200; this is h100")


def test_what_was_tuned_on_this_machine_comes_before(request_for: Requests, ship: Ship, store: Store) -> None:
    ship()
    request = request_for(TRAIN, mask="causal")
    own = load_spec({**ship(keys=64).model_dump(exclude_unset=True), "name": "own"})
    entry = Entry(
        problem=request.problem,
        shape=TRAIN,
        direction="forward",
        where=HERE,
        spec=own,
        tiling=plan(own).tiling,
        seconds=1e-3,
        beat="h200_fa3",
        beat_seconds=2e-3,
        asked="",
        timed=1,
        feasible=1,
    )
    store.put(entry)
    assert (chosen(request).source, chosen(request).name) == ("tuned", "own")
    twin = next(one for one in choose.choice_of(request).candidates if one.name == WINNER)
    assert twin.refusal == "the same kernels as own"


def test_of_two_in_a_bucket_the_nearest(
    request_for: Requests, ship: Ship, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, near = (
        Winner(
            load_spec({**ship(keys=keys).model_dump(exclude_unset=True), "name": f"of_{length}"}),
            NamedShape(f"at_{length}", {}, replace(TRAIN, seqlen_q=length)),
        )
        for keys, length in ((48, 6000), (64, 9000))
    )
    monkeypatch.setattr(tuned, "winners", lambda: (far, near))
    choice = choose.choice_of(request_for(TRAIN, mask="causal"))
    assert choice.chosen is not None and choice.chosen.name == "of_9000"
    assert {"of_6000", "of_9000"} <= {one.name for one in choice.candidates if not one.refusal}


def test_specs_tuned_for_shapes_that_the_models_do_not_make_are_for_nobody(folder: Path, ship: Ship) -> None:
    ship()
    ship("of_mine")
    (folder / "notes.yaml").write_text("nothing: a spec has\n")
    assert [one.spec.name for one in winners(folder)] == [WINNER]
    assert winners(folder) is winners(folder), "read once"
