from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from fake_work import BASE
from torch import Tensor

from fagen.ops.backward import Inputs
from fagen.ops.reference import attention
from fagen.ops.reference_fp8 import dequantized
from fagen.ops.reference_gradients import gradients
from fagen.paths import SPECS
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec
from fagen.spec.model import Problem, Spec
from fagen.tune import variant
from fagen.tune.check import check

SHAPE = Shape(3, 24, 40, 4, 2)
SIXTEEN_BIT = load_spec(BASE, {"problem.mask": "causal", "problem.head_dim": 16})
EIGHT_BIT_BASE = load_spec(SPECS / "h200_fp8.yaml", {"problem.mask": "causal"})
LAYOUTS = ["bshd", "bhsd", "thd"]
EIGHT_BIT: list[dict[str, Any]] = [
    *({"problem.layout": layout} for layout in LAYOUTS),
    {"problem.fp8": {"scale": "block"}},
    {"problem.v_transposed": True},
    {"problem.v_transposed": True, "problem.layout": "bhsd", "problem.fp8": {"scale": "block"}},
]
RESULTS = [(direction, name) for direction, names in variant.NAMES.items() for name in names]
Spoil = Callable[[dict[str, Tensor]], object]


def forward(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, packing: Any, descales: Any, seed: None
) -> dict[str, Tensor]:
    dtype, offsets = q.dtype, packing.offsets if packing else ()
    if descales is not None:
        q, k, v = dequantized(problem, q, k, v, descales, offsets)
        problem, dtype = problem.model_copy(update={"v_transposed": False}), torch.bfloat16
    out, lse = attention(problem, q, k, v, *offsets)
    return {"out": out.to(dtype), "LSE": lse.float(), "m and l": torch.full((1,), torch.nan)}


def backward(problem: Problem, x: Inputs) -> dict[str, Tensor]:
    found = gradients(problem, x.q, x.k, x.v, *(x.packing.offsets if x.packing else ()), dout=x.dout)
    return {name: own.to(x.q.dtype) for name, own in found._asdict().items()}


PASSES = {"forward": forward, "backward": backward}


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """What `check` says of a pass in plain PyTorch whose results `spoil` has changed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tensors are tiny

    def run(
        direction: str,
        layout: str = "bshd",
        spoil: Spoil = lambda results: None,
        base: Spec = SIXTEEN_BIT,
    ) -> str:
        spec = base if base.problem.is_fp8 else load_spec(base, {"problem.layout": layout})

        def a_pass(own: str, *given: Any) -> tuple[Tensor, ...]:
            results = PASSES[own](spec.problem, *given)
            if own == direction:
                spoil(results)
            return tuple(results.values())

        monkeypatch.setattr(variant, "load", lambda _, own: partial(a_pass, own))
        return check(spec, SHAPE, direction, "cpu")

    yield run
    torch.set_num_threads(threads)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("direction", PASSES)
def test_what_is_right_is_right(checked, direction, layout):
    assert checked(direction, layout) == ""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("direction", "name"), RESULTS)
def test_an_error_in_the_last_head_of_the_last_sequence_is_found(checked, direction, name, layout):
    def spoil(results: dict[str, Tensor]) -> None:
        results[name][(-1,) * results[name].dim()] += 1

    found = checked(direction, layout, spoil)
    assert found.startswith(f"{name}: error ") and found.endswith("(sequence 2, K/V head 1)")
    assert ";" not in found


def test_an_error_in_the_first_head_is_found(checked):
    found = checked("forward", spoil=lambda results: results["out"][0, 0, 0, 0].add_(1))
    assert found.startswith("out: error ") and found.endswith("(sequence 0, K/V head 0)")


@pytest.mark.parametrize(("direction", "name"), RESULTS)
def test_what_was_not_written_is_found_anywhere(checked, direction, name):
    def spoil(results: dict[str, Tensor]) -> None:
        written = results[name]
        results[name] = torch.empty_like(written)  # its last sequence but one stays
        results[name][0], results[name][2] = written[0], written[2]

    found = checked(direction, spoil=spoil)
    assert found.startswith(f"{name}: ") and found.endswith("elements are NaN")


@pytest.mark.parametrize("keys", EIGHT_BIT, ids=str)
def test_8_bit_results_are_compared_with_what_their_descales_make_of_them(checked, keys):
    spec = load_spec(EIGHT_BIT_BASE, keys)

    def spoil(results: dict[str, Tensor]) -> None:
        results["out"][(-1,) * results["out"].dim()] += 10

    assert checked("forward", base=spec) == ""
    found = checked("forward", spoil=spoil, base=spec)
    assert found.startswith("out: error ") and found.endswith("(sequence 2, K/V head 1)")


def test_torch_is_left_as_it_was(checked):
    checked("backward")
    assert not torch.are_deterministic_algorithms_enabled()
