"""Ways to write a small spec in one line, and plans to be drawn."""

from collections.abc import Callable
from typing import Any

import pytest

from fagen.hw.arch import ARCHES
from fagen.paths import SPECS
from fagen.plan.ir import Plan
from fagen.plan.planner import plans
from fagen.spec.load import load_spec
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


# Shipped specs as they are, and changed: other archs, and what none of them has.
DRAWN = {
    **{path.stem: (path, {}, None) for path in SPECS.glob("*.yaml")},
    **{f"a100_fa2_{arch}": (SPECS / "a100_fa2.yaml", {}, arch) for arch in ARCHES},
    "a100_fa1_sm_120a": (SPECS / "a100_fa1.yaml", {}, "sm_120a"),
    "cluster": (
        SPECS / "h200_fa3.yaml",
        {"schedule.cluster": 2, "schedule.scheduler": "longest_first", "problem.mask": "none"},
        None,
    ),
    "no_turns": (SPECS / "h200_fa3.yaml", {"schedule.roles.math.pingpong": False}, None),
    "two_ctas": (SPECS / "a100_fa2.yaml", {"schedule.ctas_per_sm": 2, "schedule.tile.q": 64}, None),
    "spills": (
        SPECS / "a100_fa2.yaml",
        {"schedule.tile": {"q": 128, "kv": 96}, "schedule.roles.math.warps": 4, "schedule.allow": ["spills"]},
        None,
    ),
    "packed": (SPECS / "h200_fa3.yaml", {"problem.layout": "thd", "problem.softcap": 50.0}, None),
    "long_name": (
        SPECS / "rtx4090_fa2.yaml",
        {"name": "a_name_of_sixty_four_letters_" + "x" * 35, "problem.deterministic": True},
        None,
    ),
}


@pytest.fixture(scope="session", params=sorted(DRAWN))
def drawn(request: pytest.FixtureRequest) -> tuple[Plan, ...]:
    """The plans of the passes of a spec of DRAWN."""
    path, overrides, arch = DRAWN[request.param]
    return plans(load_spec(path, overrides), arch)
