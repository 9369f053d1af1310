"""`fagen.load`, and what importing fagen costs."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fagen
from fagen.errors import ArgumentError, LaunchError, PlanError, SpecError
from fagen.paths import SPECS
from fagen.spec.load import load_spec

Spec = Callable[..., dict[str, Any]]


def test_a_path_a_mapping_and_a_spec_are_one_op() -> None:
    path = SPECS / "a100_fa2.yaml"
    op = fagen.load(path)
    assert fagen.load(str(path)) is op
    assert fagen.load(load_spec(path)) is op
    assert op.name == op.spec.name == "a100_fa2"
    assert torch.ops.fagen.a100_fa2.default is op._torch_op


def test_overrides_are_another_op() -> None:
    path, changed = SPECS / "a100_fa2.yaml", {"problem.head_dim": 64}
    op = fagen.load(path, changed)
    assert op is not fagen.load(path) and op is fagen.load(path, changed)
    assert op.spec.problem.head_dim == 64 and op.name != "a100_fa2"


class Model(torch.nn.Module):
    def __init__(self, op: Any):
        super().__init__()
        self.op = op


@pytest.mark.parametrize("passes", [["forward"], ["forward", "backward"]])
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copied_or_unpickled_model_has_the_op_that_the_spec_has(
    problem_spec: Spec, passes: list[str], again: Callable[[Any], Any]
) -> None:
    op = fagen.load(problem_spec(f"kept_{len(passes)}", head_dim=16, passes=passes), device="emu")
    op.prepare()
    assert again(Model(op)).op is op


def test_a_spec_that_does_not_fit_is_refused_at_once(problem_spec: Spec) -> None:
    spec = problem_spec("too_large", head_dim=256) | {"schedule": {"tile": {"q": 256, "kv": 256}}}
    with pytest.raises(PlanError, match="shared memory"):
        fagen.load(spec)


@pytest.mark.parametrize("dim", [33, 100, 512])
def test_a_head_dim_that_no_kernel_has_is_refused_at_once(problem_spec: Spec, dim: int) -> None:
    with pytest.raises(SpecError, match="head_dim"):
        fagen.load(problem_spec("odd_dim", head_dim=dim))


@pytest.mark.parametrize("arch", ["sm_70", "hopper"])
def test_unknown_arch(problem_spec: Spec, arch: str) -> None:
    with pytest.raises(PlanError, match=rf"arch is '{arch}'; allowed: sm_80"):
        fagen.load(problem_spec("unknown_arch"), arch=arch)


def test_importing_fagen_does_not_import_torch() -> None:
    code = "import fagen, sys; fagen.__version__; assert 'torch' not in sys.modules; assert fagen.load"
    root = Path(fagen.__file__).parents[1]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_no_other_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        fagen.lod  # type: ignore[attr-defined]  # noqa: B018


def test_preparing_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(device: int) -> tuple[int, int]:
        raise LaunchError(f"no device {device}")

    monkeypatch.setattr("fagen.runtime.context.capability", none)
    with pytest.raises(LaunchError, match="no device 0"):
        fagen.load(SPECS / "a100_fa2.yaml").prepare(0)


def test_an_op_of_the_emulator_is_another_op() -> None:
    path = SPECS / "a100_fa2.yaml"
    op = fagen.load(path, device="emu")
    assert op is fagen.load(path, device="emu") and op is not fagen.load(path)
    assert torch.ops.fagen.a100_fa2__emu.default is op._torch_op


def test_an_unknown_device() -> None:
    with pytest.raises(ArgumentError, match=r"device: is 'tpu'; allowed: \"emu\", or None"):
        fagen.load(SPECS / "a100_fa2.yaml", device="tpu")  # type: ignore[arg-type]
