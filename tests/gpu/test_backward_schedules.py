"""Whatever a schedule of the backward says, the gradients are right: random schedules on random problems."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from gpu_cases import Cases

from fagen.errors import PlanError, SpecError
from fagen.ops.op import AttentionOp
from fagen.plan.planner import plan

# Schedule keys and values to draw from; the first of two lists is for the emulator.
CHOICES: dict[str, tuple[tuple[Any, ...], ...]] = {
    "tile.q": ((32, 64), (32, 64, 128)),
    "tile.kv": ((32, 48, 64), (32, 64, 96, 128)),
    "warps.q": ((1, 2), (1, 2, 4)),
    "warps.kv": ((1, 2), (1, 2, 4)),
    "warps.dq": ((1, 2, 4), (1, 2, 4)),
    "stages.q": ((1, 2),) * 2,
    "stages.ds": ((1, 2),) * 2,
    "ctas_per_sm": ((1, 2),) * 2,
    "scheduler": (("in_order", "longest_first"),) * 2,
}
HEADS = ((64, 64), (96, 96), (128, 128), (192, 128), (256, 256), (72, 40))


def drawn(cases: Cases, random: Random) -> AttentionOp:
    """An op with half of the backward's keys and the problem at random; what is refused is drawn again."""
    while True:
        head_dim, head_dim_v = random.choice(HEADS[:1] if cases.small else HEADS)
        problem = {
            "dtype": random.choice(("fp16", "bf16")),
            "head_dim": head_dim,
            "head_dim_v": head_dim_v,
            "layout": random.choice(("bshd", "bhsd", "thd")),
            "mask": random.choice(("none", "causal", {"window": [100, 20]}, {"window": [None, 7]})),
            "deterministic": random.choice((False, True)),
        }
        schedule: dict[str, Any] = {}
        for key, values in CHOICES.items():
            if cases.small or random.random() < 0.5:
                schedule[f"backward.{key}"] = random.choice(values[not cases.small])
        try:
            tiling = plan(cases.op(schedule=schedule, **problem).spec, None, "backward").tiling
        except (SpecError, PlanError):
            continue
        # Odd ones spill; told so, the planner would choose other tiles.
        pinned = {"backward.tile.q": tiling.q, "backward.tile.kv": tiling.kv, "allow": ["spills"]}
        return cases.op(schedule=schedule | pinned, **problem)


@pytest.mark.family("v2")
@pytest.mark.emulated(seed=range(3))
@pytest.mark.parametrize("seed", range(32))
def test_random_schedules(cases: Cases, seed: int) -> None:
    op = drawn(cases, Random(seed))
    print(op)  # its name lists what was drawn
    shape = (1, 83, 150, 2, 1) if cases.small else (3, 777, 1100, 8, 2)
    cases.assert_gradients(op, *cases.inputs(op, *shape))
