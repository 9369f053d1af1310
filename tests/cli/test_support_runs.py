"""Runs every feature that is not refused, on this GPU and in the emulator, and records what came out right
for `fagen support`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fagen.bench.trial import Trial, emulated_trial, trial
from fagen.errors import PlanError, SpecError
from fagen.hw.arch import ARCHES, arch_of_capability
from fagen.ops.load import load
from fagen.spec.model import Spec
from fagen.support import EMULATOR, FAMILIES, FEATURES, HARDWARE, Feature, plan_of, record

Outcomes = dict[tuple[str, str, str], dict[tuple[str, str], bool]]  # by arch, target, device; family, feature


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Outcomes]:
    found: Outcomes = {}
    yield found
    for ran_on, passed in found.items():
        record(*ran_on, passed)


def check(outcomes: Outcomes, feature: Feature, family: str, arch: str, target: str) -> None:
    try:
        spec = plan_of(family, feature, arch).spec
    except (SpecError, PlanError) as refusal:
        pytest.skip(f"refused: {refusal}")
    device = torch.cuda.get_device_name() if target == HARDWARE else "emulator"
    passed = outcomes.setdefault((arch, target, device), {})
    passed[family, feature.name] = False
    done = run(spec, feature, target)
    passed[family, feature.name] = done.right
    assert done.error <= done.allowed
    assert done.lse_error <= done.lse_allowed


def run(spec: Spec, feature: Feature, target: str) -> Trial:
    if target == HARDWARE:
        return trial(load(spec), feature.shape)
    return emulated_trial(load(spec, device="emu"), feature.shape, seed=0, seeds=[0])


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
