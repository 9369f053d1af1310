"""Sliding windows: `left` keys before a query's place, `right` after it, both included; None: all."""

from __future__ import annotations

import pytest
import torch
from gpu_cases import Cases

from fagen.errors import SpecError
from fagen.ops import reference

Window = tuple[int | None, int | None]
WINDOWS: list[Window] = [(20, 10), (0, 0), (5, None), (None, 7), (0, None), (127, 0), (300, 300), (500, 64)]
LENGTHS = [(100, 300), (300, 100), (257, 257), (1, 129), (64, 1), (1000, 777)]
EMULATED_LENGTHS = [(40, 110), (110, 40), (1, 65)]


@pytest.mark.emulated(window=[(20, 10), (5, None)])
@pytest.mark.parametrize("window", WINDOWS)
def test_windows(cases: Cases, window: Window) -> None:
    op = cases.op(head_dim=64, mask={"window": list(window)})
    for seqlen_q, seqlen_k in EMULATED_LENGTHS if cases.small else LENGTHS:
        cases.assert_right(op, *cases.inputs(op, 2, seqlen_q, seqlen_k, 4, 2))


@pytest.mark.parametrize("head_dim", [96, 128, 256])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_windows_of_other_heads(cases: Cases, dtype: str, head_dim: int) -> None:
    op = cases.op(dtype=dtype, head_dim=head_dim, mask={"window": [200, 50]})
    for seqlen_q, seqlen_k in ((1000, 1000), (300, 800)):
        cases.assert_right(op, *cases.inputs(op, 2, seqlen_q, seqlen_k, 4))


@pytest.mark.parametrize("left", [999, 10_000, None])
def test_a_window_that_reaches_all_keys_is_causal(cases: Cases, left: int | None) -> None:
    causal, window = (cases.op(head_dim=64, mask=mask) for mask in ("causal", {"window": [left, 0]}))
    inputs = cases.inputs(window, 2, 1000, 1000, 2)
    cases.assert_result(causal, inputs, cases.run(window, *inputs))


def test_a_window_without_sides_is_no_mask(cases: Cases) -> None:
    none, window = (cases.op(head_dim=64, mask=mask) for mask in ("none", {"window": [None, None]}))
    inputs = cases.inputs(window, 2, 700, 1000, 2)
    assert torch.equal(window(*inputs), none(*inputs))


@pytest.mark.emulated
def test_a_window_of_one_key_gives_its_value(cases: Cases) -> None:
    op = cases.op(head_dim=64, mask={"window": [0, 0]})
    length = 150 if cases.small else 1000
    q, k, v = cases.inputs(op, 2, length, length, 2)
    assert torch.equal(cases.assert_right(op, q, k, v), v)


def test_keys_outside_of_the_window_do_not_count(cases: Cases) -> None:
    op = cases.op(head_dim=64, mask={"window": [100, 20]})
    q, k, v = cases.inputs(op, 1, 500, 700, 2)
    out = op(q, k, v)
    seen = reference.visible(op.spec.problem, 500, 700, q.device)
    for row in (0, 250, 499):
        loud_k, loud_v = (
            x.masked_fill(~seen[row].view(1, -1, 1, 1), value) for x, value in ((k, 30), (v, 1e4))
        )
        # Other rows of the warp do see them, and move its maxima when they do: bits may differ.
        torch.testing.assert_close(op(q, loud_k, loud_v)[:, row], out[:, row], rtol=2e-2, atol=2e-2)


@pytest.mark.emulated
@pytest.mark.parametrize("window", [(-3, 0), (-3, None), (0, -3)])
def test_negative_sides_are_refused(cases: Cases, window: Window) -> None:
    with pytest.raises(SpecError, match=r"problem\.mask.*-3"):
        cases.op(head_dim=64, mask={"window": list(window)})
