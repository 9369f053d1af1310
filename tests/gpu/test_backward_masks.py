"""The backward's mask is the forward's: causal, windows with sides of every kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpu_cases import Cases

Window = tuple[int | None, int | None]
WINDOWS: list[Window] = [(20, 10), (0, 0), (5, None), (None, 7), (0, None), (127, 0), (300, 300), (500, 64)]
LENGTHS = [(100, 300), (300, 100), (257, 257), (1, 129), (64, 1), (1000, 777)]
EMULATED_LENGTHS = [(40, 110), (110, 40), (1, 65)]


@pytest.mark.emulated("v1", "v2", window=[(20, 10), (5, None)])
@pytest.mark.parametrize("window", WINDOWS)
def test_windows(cases: Cases, window: Window) -> None:
    op = cases.op(head_dim=64, mask={"window": list(window)})
    for seqlen_q, seqlen_k in EMULATED_LENGTHS if cases.small else LENGTHS:
        cases.assert_gradients(op, *cases.inputs(op, 1, seqlen_q, seqlen_k, 4, 2))


@pytest.mark.parametrize(
    ("mask", "seqlen_q", "seqlen_k"),
    [
        ("none", 256, 256),
        ("causal", 100, 300),
        ("causal", 300, 100),
        ({"window": [20, 10]}, 100, 300),
    ],
)
def test_the_mask_is_that_of_the_forward(cases: Cases, mask: Any, seqlen_q: int, seqlen_k: int) -> None:
    op = cases.op(head_dim=64, mask=mask)
    cases.assert_gradients(op, *cases.inputs(op, 2, seqlen_q, seqlen_k, 4, 2))


@pytest.mark.parametrize("head_dim", [96, 128, 256])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_windows_of_other_heads(cases: Cases, dtype: str, head_dim: int) -> None:
    op = cases.op(dtype=dtype, head_dim=head_dim, mask={"window": [200, 50]})
    for seqlen_q, seqlen_k in ((1000, 1000), (300, 800)):
        cases.assert_gradients(op, *cases.inputs(op, 2, seqlen_q, seqlen_k, 4))


@pytest.mark.parametrize("left", [999, 10_000, None])
def test_a_window_that_reaches_all_keys_is_causal(cases: Cases, left: int | None) -> None:
    causal, window = (cases.op(head_dim=64, mask=mask) for mask in ("causal", {"window": [left, 0]}))
    inputs = cases.inputs(window, 2, 1000, 1000, 2)
    dout = cases.dout(window, *inputs)
    _, found = cases.gradients(window, *inputs, dout=dout)
    cases.assert_near(causal, inputs, found, dout=dout)


def test_a_window_without_sides_is_no_mask(cases: Cases) -> None:
    none, window = (cases.op(head_dim=64, mask=mask) for mask in ("none", {"window": [None, None]}))
    inputs = cases.inputs(window, 2, 700, 1000, 2)
    dout = cases.dout(window, *inputs)
    _, found = cases.gradients(window, *inputs, dout=dout)
    cases.assert_near(none, inputs, found, dout=dout)


@pytest.mark.emulated("v1", "v2")
def test_a_window_of_one_key(cases: Cases) -> None:
    """P is 1 there, whatever the scores: dV is dO, and nothing else has a gradient."""
    op = cases.op(head_dim=64, mask={"window": [0, 0]})
    length, heads = (70, 1) if cases.small else (1000, 2)
    inputs = cases.inputs(op, 2, length, length, heads)
    dout = cases.dout(op, *inputs)
    found = cases.assert_gradients(op, *inputs, dout=dout)
    assert torch.equal(found.dv, dout)
