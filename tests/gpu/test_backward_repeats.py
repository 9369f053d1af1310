"""Gradients again and again: right each time, with `deterministic` the same bits, also beside other work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpu_cases import Cases, assert_same_bits

RUNS = 100
SLEEP = 20_000_000  # clock cycles, about 10 ms: time to ask for all that is to run at once


def test_many_short_runs_are_all_right(cases: Cases) -> None:
    op = cases.op(dtype="fp16", mask="none")
    inputs = tuple(3 * x for x in cases.inputs(op, 300, 2048, 128, 1))
    dout = torch.ones_like(cases.dout(op, *inputs))
    runs = [cases.gradients(op, *inputs, dout=dout)[1] for _ in range(50)]
    cases.assert_near(op, inputs, *runs, dout=dout)
    assert_same_bits(*((found.dk, found.dv) for found in runs))


@pytest.mark.emulated("v2", layout=["bshd"], mask=["causal"], head_dim=[64], heads_kv=[1])
@pytest.mark.parametrize("layout", ["bshd", pytest.param("thd", marks=pytest.mark.family("v2", "v3"))])
@pytest.mark.parametrize("mask", ["causal", "window"])
@pytest.mark.parametrize("heads_kv", [1, 8])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_deterministic_gradients_are_bit_equal(
    cases: Cases, head_dim: int, heads_kv: int, mask: str, layout: str
) -> None:
    own_mask: Any = {"window": [127, 0]} if mask == "window" else mask
    op = cases.op(head_dim=head_dim, mask=own_mask, layout=layout, deterministic=True)
    if cases.small:  # one run for each order of the emulator's threads
        cases.assert_gradients(op, *cases.inputs(op, 1, 70, 130, 2, heads_kv))
        return
    lengths = ((300, 0, 777, 1), (200, 50, 900, 70))
    packed = layout == "thd"
    heads = 8, heads_kv
    inputs = cases.packed(op, *lengths, *heads) if packed else cases.inputs(op, 2, 777, 900, *heads)
    dout = cases.dout(op, *inputs)
    first = cases.assert_gradients(op, *inputs, dout=dout)

    leaves = tuple(x.detach().requires_grad_() for x in inputs[:3])
    other = torch.cuda.Stream()
    load = torch.randn((4096, 4096), device=cases.device)
    for loaded in (False, True):
        runs = []
        torch.cuda._sleep(SLEEP)
        for _ in range(RUNS):
            if loaded:
                with torch.cuda.stream(other):
                    torch.mm(load, load)
            runs.append(torch.autograd.grad(op(*leaves, *inputs[3:]), leaves, dout))
        torch.cuda.synchronize()
        assert_same_bits(first, *runs)
