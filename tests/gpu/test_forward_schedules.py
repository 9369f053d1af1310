"""Whatever a schedule says, the numbers are right: random schedules on random problems."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from gpu_cases import Cases

from fagen.errors import PlanError, SpecError
from fagen.ops.op import AttentionOp
from fagen.plan.planner import plan

RESCALE = ("always", {"lazy": 0}, {"lazy": 8})
EXP2 = ("hardware", {"polynomial": 0.25}, {"polynomial": 1})
# By family: schedule keys and values to draw from; the first of two lists is for the emulator.
CHOICES: dict[str, dict[str, tuple[tuple[Any, ...], ...]]] = {
    "v1": {
        "tile.q": ((32, 64), (32, 64, 128)),
        "tile.kv": ((16, 48, 64), (16, 32, 48, 64, 96, 128)),
        "roles.math.warps": ((1, 2), (2, 4, 8)),
    },
    "v2": {
        "tile.q": ((32, 64), (32, 64, 128)),
        "tile.kv": ((16, 48, 64), (16, 32, 48, 64, 96, 128)),
        "roles.math.warps": ((1, 2), (2, 4, 8)),
        "stages.kv": ((2, 3), (2, 3, 4)),
        "q_operand": (("shared", "registers"),) * 2,
        "ctas_per_sm": ((1, 2),) * 2,
        "softmax.rescale": (RESCALE,) * 2,
        "softmax.exp2": (EXP2,) * 2,
        "scheduler": (("in_order", "longest_first"),) * 2,
    },
    "v3": {
        "tile.q": ((64, 128), (64, 128, 192)),
        "tile.kv": ((16, 48, 64), (16, 32, 64, 80, 96, 112, 128, 176)),
        "stages.kv": ((2, 3), (2, 3, 4, 6)),
        "stages.q": ((1, 2),) * 2,
        "roles.math.pingpong": ((True, False),) * 2,
        "roles.math.overlap": ((True, False),) * 2,
        "softmax.rescale": ((*RESCALE, {"growth": 0}, {"growth": 6}, {"growth": 15}),) * 2,
        "softmax.exp2": (EXP2,) * 2,
        "scheduler": (("in_order", "longest_first", "persistent", "persistent_lpt"),) * 2,
        "cluster": ((1, 2),) * 2,
        "pack_gqa": ((False, True),) * 2,
    },
}
HEADS = ((64, 64), (96, 96), (128, 128), (192, 128), (256, 256), (72, 40))


def drawn(cases: Cases, random: Random) -> AttentionOp:
    """An op with half of the schedule's keys and the problem at random; what is refused is drawn again."""
    while True:
        head_dim, head_dim_v = random.choice(HEADS[:1] if cases.small else HEADS)
        problem = {
            "dtype": random.choice(("fp16", "bf16")),
            "head_dim": head_dim,
            "head_dim_v": head_dim_v,
            "layout": random.choice(("bshd", "bhsd", "thd")),
            "mask": random.choice(("none", "causal", {"window": [100, 20]}, {"window": [None, 7]})),
            "softcap": random.choice((None, None, 20.0)),
        }
        keys = CHOICES[cases.family].items()
        schedule = {
            key: random.choice(values[not cases.small]) for key, values in keys if random.random() < 0.5
        }
        if cases.small and "tile.q" in schedule:
            schedule.setdefault("roles.math.warps", schedule["tile.q"] // 16)
        try:
            tiling = plan(cases.op(schedule=schedule, **problem).spec).tiling
        except (SpecError, PlanError):
            continue
        # Odd ones spill; told so, the planner would choose other tiles.
        pinned = {"tile.q": tiling.q, "tile.kv": tiling.kv, "allow": ["spills"]}
        return cases.op(schedule=schedule | pinned, **problem)


@pytest.mark.emulated(seed=range(4))
@pytest.mark.parametrize("seed", range(32))
def test_random_schedules(cases: Cases, seed: int) -> None:
    op = drawn(cases, Random(seed))
    print(op)  # its name lists what was drawn
    shape = (2, 83, 150, 4, 2) if cases.small else (3, 777, 1100, 8, 2)
    inputs = cases.inputs(op, *shape)
    cases.assert_right(op, *inputs)
    # Scores that grow along the keys have every kind of rescaling move the maximum.
    keys = inputs[1]
    axis = {"bshd": 1, "bhsd": 2, "thd": 0}[op.spec.problem.layout]
    grows = 12 * keys.new_ones(keys.shape[axis]).cumsum(0) / keys.shape[axis]
    keys *= grows.view([-1 if i == axis else 1 for i in range(keys.dim())])
    cases.assert_right(op, *inputs)
