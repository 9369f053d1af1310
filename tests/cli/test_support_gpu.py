"""Runs on this GPU every feature that is not refused, and records what came out right for `fagen support`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fagen.bench.trial import trial
from fagen.errors import PlanError, SpecError
from fagen.hw.arch import arch_of_capability
from fagen.ops.load import load
from fagen.support import FAMILIES, FEATURES, Feature, plan_of, record

pytestmark = pytest.mark.gpu
Outcomes = dict[tuple[str, str], bool]


def arch() -> str:
    return arch_of_capability(torch.cuda.get_device_capability()).name


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Outcomes]:
    found: Outcomes = {}
    yield found
    record(arch(), torch.cuda.get_device_name(), found)


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_feature_is_right(family: str, feature: Feature, outcomes: Outcomes):
    try:
        spec = plan_of(family, feature, arch()).spec
    except (SpecError, PlanError) as refusal:
        pytest.skip(f"refused: {refusal}")
    outcomes[family, feature.name] = False
    done = trial(load(spec), feature.shape)
    outcomes[family, feature.name] = done.right
    assert done.error <= done.allowed
    assert done.lse_error <= done.lse_allowed
