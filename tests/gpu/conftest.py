"""Which of the tests here run where, and the fixture that has them run for each family of kernels.

Tests marked `emulated` run in the emulator too, with small tiles and sizes; the mark's arguments name the
families (all, if none) and the values of a parameter that do: `emulated("v1", "v2", head_dim=[8, 40])`.
`family("v2", "v3")`, of a test or a value, has only these families run it, wherever.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # gpu_cases.py

from fp8_cases import Fp8Cases
from gpu_cases import Cases

from fagen.hw.arch import arch_of_capability
from fagen.support import FAMILIES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cases" in metafunc.fixturenames:
        values = [pytest.param(f"{family}-cuda", marks=pytest.mark.gpu) for family in FAMILIES]
        if metafunc.definition.get_closest_marker("emulated"):
            values += [pytest.param(f"{family}-emu") for family in FAMILIES]
        metafunc.parametrize("cases", values, indirect=True)
    if "fp8_cases" in metafunc.fixturenames:
        values = [pytest.param("v3-cuda", marks=pytest.mark.gpu)]
        if metafunc.definition.get_closest_marker("emulated"):
            values.append(pytest.param("v3-emu"))
        metafunc.parametrize("fp8_cases", values, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    left_out = {item for item in items if here in item.path.parents and _is_left_out(item)}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _is_left_out(item: pytest.Item) -> bool:
    """Whether its marks leave out its family, or some of its parameters in the emulator."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    own = params.get("cases", params.get("fp8_cases"))
    if own is None:
        return False
    family, device = str(own).split("-")
    if any(family not in only.args for only in item.iter_markers("family")):
        return True
    emulated = item.get_closest_marker("emulated")
    if device != "emu" or not emulated:
        return False
    others = emulated.args and family not in emulated.args
    return bool(others) or any(params[key] not in values for key, values in emulated.kwargs.items())


@pytest.fixture(scope="session")
def cases(request: pytest.FixtureRequest) -> Cases:
    family, device = request.param.split("-")
    _skip_unless_it_runs(family, device)
    return Cases(family, emulated=device == "emu")


@pytest.fixture(scope="session")
def fp8_cases(request: pytest.FixtureRequest) -> Fp8Cases:
    family, device = request.param.split("-")
    _skip_unless_it_runs(family, device)
    return Fp8Cases(emulated=device == "emu")


def _skip_unless_it_runs(family: str, device: str) -> None:
    if device == "cuda":
        arch = arch_of_capability(torch.cuda.get_device_capability())
        if family not in arch.families:
            pytest.skip(f"family {family} does not run on {arch.name}")
