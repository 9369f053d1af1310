"""What the tuner times is what CUDA events say of many calls, and it touches nobody's tensors."""

from __future__ import annotations

import time
from statistics import median

import pytest
import torch

from fagen.bench.clock import REST, WARM_UP, CudaClock, interleaved, l2_flush
from fagen.paths import SPECS
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec
from fagen.tune import variant
from fagen.tune.job import Batch
from fagen.tune.timing import timings

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

SPEC = load_spec(SPECS / "h200_fa2.yaml", {"problem.mask": "causal"})
SHAPE = Shape(2, 4096, 4096, 16, 16)  # larger than L2, so that it does not matter what it finds there
CALLS = 100


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_medians_agree_with_events_around_100_calls(direction):
    (timing,) = timings(Batch((SPEC,), SHAPE, direction, rounds=30))
    given = variant.arguments(SPEC, SHAPE, direction, seed=0, device="cuda")
    run = variant.load(SPEC, direction)
    torch.cuda.synchronize()
    time.sleep(REST)
    for _ in range(WARM_UP):
        run(*given)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(CALLS):
        run(*given)
    end.record()
    end.synchronize()
    around = start.elapsed_time(end) / 1e3 / CALLS
    assert len(timing.seconds) == 30
    assert median(timing.seconds) == pytest.approx(around, rel=0.05)


def test_it_makes_no_difference_where_in_a_batch_a_variant_stands():
    found = timings(Batch((SPEC,) * 8, SHAPE, "forward", rounds=10))
    medians = [median(timing.seconds) for timing in found]
    assert max(medians) <= 1.03 * min(medians)


def test_a_flush_leaves_nothing_in_l2():
    x = torch.randn(2**23, device="cuda")  # 32 MiB

    def busy() -> None:  # as a flush keeps the GPU busy, so that the next call is in the queue by then
        torch.cuda._sleep(200_000)

    (warm,), (cold,) = (interleaved([x.amax], CudaClock(), before=before) for before in (busy, l2_flush()))
    assert median(cold) > 1.05 * median(warm)


def test_tensors_of_the_caller_stay_as_they_are():
    given = variant.arguments(SPEC, Shape(1, 512, 512, 2, 2), "forward", seed=5, device="cuda")[:3]
    tensors = [*given, torch.zeros(2**20, device="cuda")]
    copies = [x.clone() for x in tensors]
    for direction in ("forward", "backward"):
        timings(Batch((SPEC,), Shape(1, 512, 512, 2, 2), direction, rounds=3))
    assert all(torch.equal(x, copy) for x, copy in zip(tensors, copies, strict=True))
