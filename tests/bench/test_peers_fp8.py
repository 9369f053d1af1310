"""Peers of 8 bits, their libraries as the documentation has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fagen.bench.expected import expected, random_inputs
from fagen.bench.peers.installed import PEERS
from fagen.ops.quantize import Scale
from fagen.plan.launch import Shape
from fagen.spec.model import Problem

pytestmark = pytest.mark.usefixtures("libraries")

NAMES = ["cuDNN FP8", "FA3 FP8"]
SQUARE, WIDE, DECODE = Shape(2, 48, 48, 4, 2), Shape(2, 17, 48, 4, 2), Shape(3, 1, 32, 8, 2)


def problem(**keys: Any) -> Problem:
    return Problem.model_validate({"dtype": "e4m3", "head_dim": 64, "passes": ("forward",), **keys})


def error_of(name: str, of: Problem, shape: Shape, scale: Scale = "tensor") -> float:
    inputs = random_inputs(of, shape, seed=0, device="cpu", scale=scale)
    call = PEERS[name].adapter(of, *inputs[:3], *inputs[-3:])
    exact = expected(of, inputs)
    errors: Sequence[float] = [exact.error(call()) for _ in range(2)]
    assert errors[0] == errors[1], "a second call gives the same"
    return errors[1]


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("name", NAMES)
def test_peers_are_right(name: str, mask: str, layout: str) -> None:
    assert abs(error_of(name, problem(mask=mask, layout=layout), SQUARE)) < 5e-3  # bf16's rounding


@pytest.mark.parametrize("shape", [WIDE, DECODE], ids=["more keys", "decode"])
@pytest.mark.parametrize("name", NAMES)
def test_peers_are_right_on_other_lengths(name: str, shape: Shape) -> None:
    assert abs(error_of(name, problem(), shape)) < 5e-3


def test_fa3_takes_a_descale_for_each_head_a_window_and_a_softcap() -> None:
    of = problem(mask={"window": (7, 0)}, softcap=2.0)
    assert error_of("FA3 FP8", of, WIDE, scale="head") < 5e-3


@pytest.mark.parametrize(
    ("keys", "shape", "scale", "why"),
    [
        ({}, SQUARE, "head", "takes one descale for each tensor"),
        ({"mask": "causal"}, WIDE, "tensor", "aligned top-left"),
        ({"mask": {"window": (7, 0)}}, SQUARE, "tensor", "no sliding window"),
        ({"softcap": 2.0}, SQUARE, "tensor", "no softcap"),
    ],
)
def test_what_cudnn_has_not_it_says(keys: dict, shape: Shape, scale: Scale, why: str) -> None:
    with pytest.raises(RuntimeError, match=why):
        error_of("cuDNN FP8", problem(**keys), shape, scale)


@pytest.mark.parametrize(
    ("keys", "scale", "why"),
    [
        ({"dtype": "e5m2"}, "tensor", "is not compared on e5m2"),
        ({"fp8": {"scale": "block"}}, "block", "has no descales of blocks"),
        ({"v_transposed": True}, "tensor", "does not take v transposed"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_what_only_we_have_of_8_bits_they_say(name: str, keys: dict, scale: Scale, why: str) -> None:
    with pytest.raises(RuntimeError, match=why):
        error_of(name, problem(**keys), SQUARE, scale)
