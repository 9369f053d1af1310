from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fagen.compile.artifact import Artifact
from fagen.compile.report import Resources
from fagen.runtime import context, launch, module, tensormap

sys.path.insert(0, str(Path(__file__).parent))

from fake_driver import FakeDriver


@pytest.fixture
def driver(monkeypatch):
    """A machine with two H200 and an A100."""
    fake = FakeDriver(("NVIDIA H200", (9, 0)), ("NVIDIA H200", (9, 0)), ("NVIDIA A100", (8, 0)))
    for user in (context, launch, module, tensormap):
        monkeypatch.setattr(user, "driver", fake)
    monkeypatch.setattr(module, "_kernels", {})
    for remembered in (context.primary_context, tensormap.encode):
        remembered.cache_clear()
    yield fake
    for remembered in (context.primary_context, tensormap.encode):
        remembered.cache_clear()


@pytest.fixture
def artifact():
    return Artifact(
        name="tiny",
        symbol="tiny_fwd",
        arch="sm_90a",
        key="0" * 64,
        nvrtc=(13, 5),
        cubin=b"\x7fELF",
        resources=Resources(32, 0, 0, 0, 0, 0, ()),
        log="",
        seconds=0.1,
        cached=False,
        path=None,
    )
