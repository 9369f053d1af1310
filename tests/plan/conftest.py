"""Ways to write a small spec in one line."""

from collections.abc import Callable
from typing import Any

import pytest

from fagen.spec.model import Spec


@pytest.fixture(scope="session")
def v2_spec() -> Callable[..., Spec]:
    """Makes a v2 spec named `t`: sm_80, bf16, head_dim 128, no mask, unless the arguments say otherwise."""

    def make(
        arch: str = "sm_80", schedule: dict[str, Any] | None = None, device: str | None = None, **problem: Any
    ) -> Spec:
        return Spec.model_validate(
            {
                "name": "t",
                "family": "v2",
                "arch": arch,
                "device": device,
                "problem": {"dtype": "bf16", "head_dim": 128} | problem,
                "schedule": schedule or {},
            }
        )

    return make


@pytest.fixture(scope="session")
def v3_spec() -> Callable[..., Spec]:
    """Makes a v3 spec named `t`: sm_90a, bf16, head_dim 128, no mask, unless the arguments say otherwise."""

    def make(schedule: dict[str, Any] | None = None, device: str | None = None, **problem: Any) -> Spec:
        return Spec.model_validate(
            {
                "name": "t",
                "family": "v3",
                "arch": "sm_90a",
                "device": device,
                "problem": {"dtype": "bf16", "head_dim": 128} | problem,
                "schedule": schedule or {},
            }
        )

    return make
