"""Whatever a schedule says, 8-bit attention has the right numbers: random schedules, scores that grow."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from fp8_cases import Fp8Cases
from test_forward_growth import PROFILES

from fagen.errors import PlanError, SpecError
from fagen.ops.op import AttentionOp
from fagen.ops.reference_fp8 import quantized
from fagen.plan.planner import plan

# Schedule keys and values to draw from; the first of two lists is for the emulator.
CHOICES: dict[str, tuple[tuple[Any, ...], ...]] = {
    "tile.q": ((64, 128), (64, 128, 192)),
    "tile.kv": ((32, 64), (32, 64, 96, 128, 160, 192, 224)),
    "stages.kv": ((2, 3), (2, 3, 4)),
    "stages.q": ((1, 2),) * 2,
    "roles.math.pingpong": ((True, False),) * 2,
    "roles.math.overlap": ((True, False),) * 2,
    "softmax.rescale": (("always", {"lazy": 0}, {"lazy": 8}, {"growth": 0}, {"growth": 4}),) * 2,
    "softmax.exp2": (("hardware", {"polynomial": 0.25}, {"polynomial": 1}),) * 2,
    "scheduler": (("in_order", "longest_first", "persistent", "persistent_lpt"),) * 2,
    "cluster": ((1, 2),) * 2,
    "pack_gqa": ((False, True),) * 2,
    "accumulate.promote_every": ((64, 128), (128, 384)),
}
HEADS = ((64, 64), (128, 128), (256, 256), (128, 64), (64, 256))
# Up to 60 nats apart: sums of about 14 bits hold larger scores less well than e^score asks for.
NEAR = ("rises", "falls", "sink", "weak sink", "last key", "spikes")


def drawn(cases: Fp8Cases, random: Random) -> AttentionOp:
    """An op with half of the schedule's keys and the problem at random; what is refused is drawn again."""
    while True:
        head_dim, head_dim_v = random.choice(HEADS[:1] if cases.small else HEADS)
        problem = {
            "dtype": random.choice(("e4m3", "e5m2")),
            "out_dtype": random.choice(("bf16", "fp16")),
            "head_dim": head_dim,
            "head_dim_v": head_dim_v,
            "layout": random.choice(("bshd", "bhsd", "thd")),
            "mask": random.choice(("none", "causal", {"window": [100, 20]}, {"window": [None, 7]})),
            "softcap": random.choice((None, None, 20.0)),
            "fp8": {"scale": random.choice(("head", "block"))},
            "v_transposed": random.random() < 0.25,
        }
        schedule = {
            key: random.choice(values[not cases.small])
            for key, values in CHOICES.items()
            if random.random() < 0.5
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


@pytest.mark.emulated(seed=range(2))
@pytest.mark.parametrize("seed", range(40))
def test_random_schedules(fp8_cases: Fp8Cases, seed: int) -> None:
    op = drawn(fp8_cases, Random(seed))
    print(op)  # its name lists what was drawn
    shape = (2, 83, 152, 4, 2) if fp8_cases.small else (3, 777, 1100, 8, 2)
    fp8_cases.assert_fp8(op, *fp8_cases.inputs(op, *shape))


@pytest.mark.emulated(rescale=["growth"], mask=["causal"], scale=["head"])
@pytest.mark.parametrize("scale", ["head", "block"])
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("rescale", ["always", "lazy", "growth"])
@pytest.mark.parametrize("profile", NEAR)
def test_scores_along_the_keys(
    fp8_cases: Fp8Cases, profile: str, rescale: str, mask: str, scale: str
) -> None:
    """P moves through all that 8 bits hold, and past it: what a kernel must notice."""
    how = {"always": "always", "lazy": {"lazy": 8}, "growth": {"growth": 4}}[rescale]
    op = fp8_cases.op(
        head_dim=64, mask=mask, layout="bhsd", fp8={"scale": scale}, schedule={"softmax.rescale": how}
    )
    sizes = (1, 1, 40, 160) if fp8_cases.small else (2, 3, 700, 1300)
    generator = torch.Generator(fp8_cases.device).manual_seed(0)
    batch, heads, seqlen_q, seqlen_k = sizes
    q, k, v = (
        torch.randn((batch, heads, rows, 64), generator=generator, device=fp8_cases.device)
        for rows in (seqlen_q, seqlen_k, seqlen_k)
    )
    q[..., 0] = 8.0  # times 1/sqrt(64)
    k[..., 0] = PROFILES[profile](torch.linspace(0, 1, seqlen_k, device=fp8_cases.device))
    tensors, descales = quantized(op.spec.problem, q, k, v, batch)
    fp8_cases.assert_fp8(op, *tensors, None, None, None, None, *descales)
