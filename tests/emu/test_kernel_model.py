"""bench.kernel_model rounds what the kernels round: the emulated kernel gives the same numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fagen.bench import kernel_model
from fagen.bench.expected import random_inputs
from fagen.ops.load import load
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec


@pytest.mark.parametrize("fp8", [{"scale": "head"}, {"scale": "block"}], ids=str)
def test_emulator_and_model_agree(fp8: dict[str, Any]) -> None:
    problem = {"dtype": "e4m3", "head_dim": 64, "mask": "causal", "passes": ["forward"], "fp8": fp8}
    tile = {"tile": {"q": 64, "kv": 64}}
    spec = load_spec(
        {
            "name": f"modelled_{fp8['scale']}",
            "family": "v3",
            "arch": "sm_90a",
            "problem": problem,
            "schedule": tile,
        }
    )
    inputs = random_inputs(spec.problem, Shape(1, 100, 200, 2, 1), 0, "cpu")
    q, k, v = inputs[:3]
    found = load(spec, device="emu")(*inputs).float()
    model = kernel_model.attention(plan(spec), q, k, v, *inputs[7:]).float()
    # A P at the middle of two e4m3 numbers may go either way, by the last bit of an exponential.
    assert (found - model).norm() < 2e-3 * model.norm()
    # Other roundings are seen: those of another offset of P.
    planned = plan(spec)
    always = replace(planned, tiling=replace(planned.tiling, growth=None))
    assert (found - kernel_model.attention(always, q, k, v, *inputs[7:]).float()).norm() > 4e-3 * model.norm()
