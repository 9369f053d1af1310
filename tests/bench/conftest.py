"""Stand-ins for what needs a GPU: a clock that counts, contenders that take as long as they are told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fagen.bench.compare import OURS, Case, Outcome, Result, cases
from fagen.paths import SPECS
from fagen.spec.load import load_spec


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


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def todo() -> list[Case]:
    """h200_fa2 (head_dim 128), without a mask and causal, at 1024 and 2048."""
    return cases([load_spec(SPECS / "h200_fa2.yaml")], (1024, 2048), "sm_90a")


@pytest.fixture
def timed() -> Callable[..., Result]:
    """A Result whose contenders took that many seconds; None: they could not run."""

    def make(case: Case, ours: float | None, **peers: float | None) -> Result:
        def outcome(seconds: float | None) -> Outcome:
            return Outcome(problem="cannot run: no") if seconds is None else Outcome(1e-3, (seconds,) * 5)

        return Result(case, 2e-3, {name: outcome(s) for name, s in {OURS: ours, **peers}.items()})

    return make
