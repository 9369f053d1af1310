"""Ops that are not built, a store of the test's own, and requests without tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # dispatch_cases.py

from dispatch_cases import HERE, SHAPE, ReferenceOp, gpu

from fagen.dispatch import choose, lookup, tuned
from fagen.dispatch.problem import Request
from fagen.dispatch.target import Target
from fagen.plan.launch import Shape
from fagen.spec.model import Problem
from fagen.tune.store import Store


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> dict[str, ReferenceOp]:
    """Nothing is built: the ops that were asked for, by name. Nothing is remembered from before."""
    made: dict[str, ReferenceOp] = {}
    monkeypatch.setattr(lookup, "load", lambda spec: made.setdefault(spec.name, ReferenceOp(spec)))
    monkeypatch.setattr(lookup, "_ops", type(lookup._ops)())
    monkeypatch.setattr(choose, "_choices", {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return made


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """What `fagen tune` found here, on HERE: nothing yet."""
    made = Store(tmp_path)
    monkeypatch.setattr(tuned, "default_store", lambda: made)
    monkeypatch.setattr(tuned, "_this_machine", lambda: HERE)
    return made


@pytest.fixture
def request_for() -> Callable[..., Request]:
    """A request of SHAPE, bf16 and head_dim 128 unless told otherwise."""

    def made(shape: Shape = SHAPE, trains: bool = False, **problem: Any) -> Request:
        keys = {"dtype": "bf16", "head_dim": 128, **problem}
        return Request(Problem.model_validate(keys), shape, trains, torch.device("cuda", 0))

    return made


@pytest.fixture
def h200() -> Target:
    return gpu()
