"""Stand-ins for what needs a GPU: a clock that counts, contenders that take as long as they are told."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fagen.bench.case import Case, cases
from fagen.bench.compare import OURS, Outcome, Result
from fagen.bench.shapes import paper_shapes
from fagen.paths import SPECS
from fagen.spec.load import load_spec

sys.path.insert(0, str(Path(__file__).parent))

import fake_peers


class FakeClock:
    """Stands still but for what a test adds."""

    now = 0.0
    rests = 0

    def mark(self) -> float:
        return self.now

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def rest(self, seconds: float) -> None:
        self.rests += 1


class FakeAllocator:
    """Holds what a test adds to `held`, and had at most `most`."""

    held = 0
    most = 0
    released = 0

    def allocated(self) -> int:
        return self.held

    def reset_peak(self) -> None:
        self.most = self.held

    def peak(self) -> int:
        return self.most

    def release(self) -> None:
        self.released += 1


@pytest.fixture
def libraries(monkeypatch) -> None:
    """The peers' libraries, computed by the reference."""
    for name, module in fake_peers.modules().items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def allocator() -> FakeAllocator:
    return FakeAllocator()


@pytest.fixture
def paper_cases() -> Callable[..., list[Case]]:
    """The cases of a shipped spec, with overrides, at these lengths in these modes."""

    def make(file: str, lengths: tuple[int, ...], modes: tuple[str, ...], **overrides: Any) -> list[Case]:
        spec = load_spec(SPECS / file, {f"problem.{key}": value for key, value in overrides.items()})
        return cases([spec], lambda own: paper_shapes(own, lengths), modes, "sm_90a")[0]

    return make


@pytest.fixture
def todo(paper_cases) -> list[Case]:
    """h200_fa2 (head_dim 128), without a mask and causal, at 1024 and 2048."""
    return paper_cases("h200_fa2.yaml", (1024, 2048), ("fwd",))


@pytest.fixture
def timed() -> Callable[..., Result]:
    """A Result whose contenders took that many seconds; None: they could not run."""

    def make(case: Case, ours: float | None, **peers: float | None) -> Result:
        def outcome(seconds: float | None) -> Outcome:
            return Outcome(problem="cannot run: no") if seconds is None else Outcome(1e-3, (seconds,) * 5)

        return Result(case, 2e-3, {name: outcome(s) for name, s in {OURS: ours, **peers}.items()})

    return make


@pytest.fixture
def sample() -> dict[str, Any]:
    """A document with many cases, made up."""
    return json.loads(Path(__file__).with_name("sample.json").read_text())
