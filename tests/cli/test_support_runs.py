"""Runs every feature that is not refused, on this GPU and in the emulator, and records what came out right
for `fagen support`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fagen.bench.expected import expected_gradients, largest_difference, random_inputs, random_like
from fagen.bench.trial import Deviation, emulated_trial, trial
from fagen.errors import PlanError, SpecError
from fagen.hw.arch import ARCHES, arch_of_capability
from fagen.ops import reference
from fagen.ops.dropout_mask import kept
from fagen.ops.load import load
from fagen.ops.op import AttentionOp
from fagen.ops.seed import draw_seed
from fagen.plan.launch import Shape
from fagen.spec.model import Spec
from fagen.support import EMULATOR, FAMILIES, FEATURES, HARDWARE, Feature, plans_of, record

P = 0.2  # of dropout
Outcomes = dict[tuple[str, str, str], dict[tuple[str, str], bool]]  # by arch, target, device; family, feature


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Outcomes]:
    found: Outcomes = {}
    yield found
    for ran_on, passed in found.items():
        record(*ran_on, passed)


def check(outcomes: Outcomes, feature: Feature, family: str, arch: str, target: str) -> None:
    try:
        spec = plans_of(family, feature, arch)[0].spec
    except (SpecError, PlanError) as refusal:
        pytest.skip(f"refused: {refusal}")
    device = torch.cuda.get_device_name() if target == HARDWARE else "emulator"
    passed = outcomes.setdefault((arch, target, device), {})
    passed[family, feature.name] = False
    deviations = run(spec, feature, target)
    passed[family, feature.name] = all(deviation.right for deviation in deviations)
    assert passed[family, feature.name], deviations


def run(spec: Spec, feature: Feature, target: str) -> tuple[Deviation, ...]:
    op = load(spec, device=None if target == HARDWARE else "emu")
    if spec.problem.dropout:
        return dropped(op, feature.shape, "cuda" if target == HARDWARE else "cpu")
    if target == HARDWARE:
        return trial(op, feature.shape).deviations
    return emulated_trial(op, feature.shape, seed=0, seeds=[0]).deviations


def dropped(op: AttentionOp, shape: Shape, device: str) -> tuple[Deviation, ...]:
    """What a trial finds, with the mask of the seed that the op draws."""
    problem = op.spec.problem
    inputs = random_inputs(problem, shape, 0, device)
    torch.manual_seed(0)
    seed = int(draw_seed(inputs[0], P))
    torch.manual_seed(0)
    leaves = tuple(x.clone().requires_grad_() for x in inputs)
    out = op(*leaves, dropout_p=P)
    dout = random_like(out, 1)
    found = torch.autograd.grad(out, leaves, dout)

    mask = kept(seed, shape.batch, shape.heads_q, shape.seqlen_q, shape.seqlen_k, P).to(device)
    dropout: dict[str, Any] = {"dropout_p": P, "kept": mask}
    exact, _ = reference.attention(problem, *inputs, **dropout)
    plain, _ = reference.plain_attention(problem, *inputs, **dropout)
    error, allowed = largest_difference(out, exact), reference.allowed_error(problem, plain, exact)
    gradients = expected_gradients(problem, inputs, dout, **dropout)
    errors = zip(("dq", "dk", "dv"), gradients.errors(found), gradients.allowed, strict=True)
    return Deviation("out", error, allowed), *(Deviation(*one) for one in errors)


@pytest.mark.gpu
@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_feature_is_right_on_this_gpu(family: str, feature: Feature, outcomes: Outcomes):
    arch = arch_of_capability(torch.cuda.get_device_capability()).name
    check(outcomes, feature, family, arch, HARDWARE)


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("family", FAMILIES)
def test_feature_is_right_in_the_emulator(family: str, arch: str, feature: Feature, outcomes: Outcomes):
    check(outcomes, feature, family, arch, EMULATOR)
