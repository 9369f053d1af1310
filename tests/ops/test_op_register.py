"""torch.ops.fagen.<name>: one spec per name, and shapes without a kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import fagen
from fagen.errors import ArgumentError, SpecError
from fagen.spec.model import NAME_PATTERN

Spec = Callable[..., dict[str, Any]]


def test_fake_tensors_have_the_shapes_of_the_result(problem_spec: Spec) -> None:
    op = fagen.load(problem_spec("fake_bhsd", layout="bhsd", head_dim_v=16))
    with FakeTensorMode():
        q, k, v = (
            torch.empty(sizes, dtype=torch.bfloat16, device="cuda")
            for sizes in ((2, 6, 33, 64), (2, 2, 40, 64), (2, 2, 40, 16))
        )
        out, lse = op(q, k, v, return_lse=True)
        assert (out.shape, out.dtype, out.device) == ((2, 6, 33, 16), torch.bfloat16, q.device)
        assert (lse.shape, lse.dtype, lse.device) == ((2, 6, 33), torch.float32, q.device)
        with pytest.raises(ArgumentError, match=r"^v: "):
            op(q, k, k)


def test_the_same_spec_again_is_the_same_op(problem_spec: Spec) -> None:
    op = fagen.load(problem_spec("again"))
    assert fagen.load(problem_spec("again")) is op
    assert fagen.load(problem_spec("again") | {"tune": {"tile.q": [64, 128]}})._torch_op is op._torch_op


def test_another_spec_under_a_taken_name_is_refused(problem_spec: Spec) -> None:
    op = fagen.load(problem_spec("taken"))
    with pytest.raises(ArgumentError, match=r"problem.mask: 'none' there, 'causal' here"):
        fagen.load(problem_spec("taken", mask="causal"))
    assert fagen.load(problem_spec("taken")) is op


def test_a_name_that_a_torch_namespace_has_is_refused(problem_spec: Spec) -> None:
    taken = [name for name in vars(torch._ops._OpNamespace("empty")) if re.match(NAME_PATTERN, name)]
    assert taken
    for name in taken:
        with pytest.raises(SpecError, match=f"name: is `{name}`"):
            fagen.load(problem_spec(name))


def test_a_pinned_op_has_a_name_of_its_own(problem_spec: Spec) -> None:
    op, pinned = fagen.load(problem_spec("pinned")), fagen.load(problem_spec("pinned"), arch="sm_90a")
    assert pinned is not op and pinned.name == "pinned__sm_90a"
    assert torch.ops.fagen.pinned__sm_90a.default is not torch.ops.fagen.pinned.default
