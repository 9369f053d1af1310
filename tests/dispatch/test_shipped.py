"""Files of specs/tuned: each is a shape's winner, says what it beat, and is what calls of the shape get."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import torch
from dispatch_cases import gpu

from fagen.dispatch.problem import Request
from fagen.dispatch.shipped import TUNED, Winner, winners
from fagen.dispatch.tuned import tuned_specs
from fagen.hw.device import device_of_product
from fagen.plan.planner import plans
from fagen.spec.load import load_spec
from fagen.tune.store import Store

ON = re.compile(r"# On (.+), driver [\d.]+, NVRTC [\d.]+, \d{4}-\d\d-\d\d\.")
BEAT = r"(?:, (?P<gain>[\d.]+) times as fast as \w+ as it stands)?"
SAID = r"# {direction}: .+: [\d,.]+ us, [\d,.]+ TFLOP/s{beat}; \d+ of \d+ variants timed\."

of_every_winner = pytest.mark.parametrize("winner", winners(), ids=lambda winner: winner.spec.name)


def test_every_file_is_for_a_shape_of_the_models() -> None:
    assert {winner.spec.name for winner in winners()} == {path.stem for path in TUNED.glob("*.yaml")}


def test_a_shape_has_one_winner_on_a_device() -> None:
    found = Counter((one.named.name, one.spec.problem.dtype, one.spec.device) for one in winners())
    assert not [what for what, count in found.items() if count > 1]


@of_every_winner
def test_it_has_the_problem_of_its_shape_and_fits(winner: Winner) -> None:
    spec = winner.spec
    assert load_spec(spec, winner.named.problem).problem == spec.problem
    assert not spec.tune
    assert [plan.direction for plan in plans(spec)] == list(spec.problem.passes)


@of_every_winner
def test_it_says_what_each_pass_beat_and_where(winner: Winner) -> None:
    lines = (TUNED / f"{winner.spec.name}.yaml").read_text(encoding="utf-8").splitlines()
    made = f"# Made by `fagen tune` for {winner.named.name}: B,Sq,Sk,Hq,Hkv = {winner.named.shape}."
    assert made in lines, "the shape that it is for is the one that it was tuned on"
    for direction in winner.spec.problem.passes:
        pattern = SAID.format(direction=direction, beat=BEAT)
        (said,) = filter(None, (re.fullmatch(pattern, line) for line in lines))
        assert float(said["gain"] or 1) >= 1
    (where,) = filter(None, (ON.fullmatch(line) for line in lines))
    assert device_of_product(where[1], winner.spec.arch).name == winner.spec.device


@pytest.mark.parametrize(
    ("winner", "trains"),
    [(winner, one == "backward") for winner in winners() for one in winner.spec.problem.passes],
    ids=lambda value: value.spec.name if isinstance(value, Winner) else f"trains: {value}",
)
def test_it_is_what_a_call_of_its_shape_gets(winner: Winner, trains: bool, store: Store) -> None:
    assert winner.spec.device
    request = Request(winner.spec.problem, winner.named.shape, trains, torch.device("cuda", 0))
    first, *_ = tuned_specs(request, gpu(winner.spec.device))
    assert (first.spec, first.source, first.refusal) == (winner.spec, "shipped", "")
