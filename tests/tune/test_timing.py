from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from fake_work import batch

from fagen.bench.clock import WARM_UP
from fagen.errors import CompileError, LaunchError
from fagen.tune import timing, variant
from fagen.tune.process import Fault
from fagen.tune.timing import compete

COPIES = [("first",), ("second",)]


class FakeGpu:
    """A clock that stands still but for what passes take; `lost` is what its context ends with."""

    now = 0.0
    lost = ""
    odd: dict[str, Callable[[], None]]

    def __init__(self) -> None:
        self.done: list[str] = []  # flushes, and inputs of passes

    def mark(self) -> float:
        return self.now

    def seconds(self, start: float, end: float) -> float:
        self.rest(0)
        return end - start

    def rest(self, seconds: float) -> None:
        if self.lost:
            raise RuntimeError(self.lost)

    def flush(self) -> None:
        self.now += 100
        self.done.append("flush")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """Where a pass takes as many seconds as its variant's name says, or raises or does what `odd` says."""
    made = FakeGpu()
    made.odd = {}

    def load(spec, direction: str) -> Callable[..., None]:
        def run(inputs: str) -> None:
            made.odd.get(spec.name, lambda: None)()
            made.now += float(spec.name[-1])
            made.done.append(inputs)

        return run

    monkeypatch.setattr(variant, "load", load)
    monkeypatch.setattr(timing, "WARM_UP", 0)
    return made


def times(gpu: FakeGpu, *names: str) -> list[tuple[float, ...] | str]:
    found = compete(batch(*names), COPIES, gpu, gpu.flush)
    return [timing.problem or timing.seconds for timing in found]


def raises(error: Exception) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


def test_each_variant_has_its_own_times(gpu):
    assert times(gpu, "v3", "v1", "v2") == [(3.0,) * 3, (1.0,) * 3, (2.0,) * 3]


def test_l2_is_flushed_before_each_timed_call_and_inputs_are_rotated(gpu):
    times(gpu, "v1")
    timed = gpu.done[gpu.done.index("flush") :]
    assert len(timed) == 2 * 2 * (3 + min(WARM_UP, 3))
    assert timed[0::2] == ["flush"] * (len(timed) // 2)
    assert {(timed[1], timed[3]), (timed[3], timed[1])} == {("first", "second"), ("second", "first")}
    assert timed[1::4] == [timed[1]] * (len(timed) // 4)


@pytest.mark.parametrize("error", [CompileError("spills 8 bytes"), LaunchError("too much shared memory")])
def test_what_cannot_run_has_a_problem_and_the_others_times(gpu, error):
    gpu.odd["v2"] = raises(error)
    assert times(gpu, "v1", "v2", "v3") == [(1.0,) * 3, str(error), (3.0,) * 3]
    assert times(gpu, "v2") == [str(error)]


def test_it_tells_which_variant_is_at_work(gpu, monkeypatch):
    told: list[int] = []
    monkeypatch.setattr(timing, "at", told.append)
    for name in ("v1", "v2"):
        gpu.odd[name] = lambda place=int(name[-1]) - 1: told.append(10 + place)
    times(gpu, "v1", "v2")
    places = [place for place in told if place < 10]
    for before, now in itertools.pairwise(told):
        assert now < 10 or before == now - 10
    assert set(places) == {0, 1}


def test_what_says_nothing_is_named_by_its_type(gpu):
    gpu.odd["v1"] = raises(AssertionError())
    assert times(gpu, "v1") == ["AssertionError"]


@pytest.mark.parametrize("at_call", [1, 5])
def test_an_end_of_the_context_is_a_fault(gpu, at_call):
    calls = 0

    def run() -> None:
        nonlocal calls
        calls += 1
        if calls == at_call:
            gpu.lost = "CUDA error: an illegal memory access was encountered"

    gpu.odd["v2"] = run
    with pytest.raises(Fault, match="illegal memory access"):
        times(gpu, "v1", "v2", "v3")
