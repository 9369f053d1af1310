"""First calls from many threads, with something that takes its time in the compiler's place."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import fagen
from fagen.ops import kernels, reference, reference_gradients
from fagen.ops.kernels import Built, Kernels, Loaded
from fagen.ops.op import AttentionOp

THREADS = 16
SECONDS = 60  # for all of them together
BUILD = 0.05  # seconds

really_on = Kernels.on


@pytest.fixture
def builds(on_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """How often each pass of each spec was built."""
    times: Counter[tuple[str, str]] = Counter()

    def build(own: Kernels) -> Loaded:
        times[own._spec.name, own._direction] += 1
        time.sleep(BUILD)
        planned = kernels.kernels(own._plan)
        return Loaded(own._plan, tuple(Built(kernel, partial(on_cpu, kernel)) for kernel in planned), 132)

    monkeypatch.setattr(Kernels, "on", really_on)
    monkeypatch.setattr(Kernels, "_emulated", build)
    return times


def test_each_is_built_once_and_right(
    builds: Counter[tuple[str, str]], problem_spec: Callable[..., dict[str, Any]]
) -> None:
    """One spec that all threads share and one of each thread's own, loaded and run forward and backward."""
    q, k, v, dout = (
        torch.randn((1, 20, 2, 64), generator=torch.Generator().manual_seed(i)) for i in range(4)
    )
    inputs, dout = tuple(x.bfloat16() for x in (q, k, v)), dout.bfloat16()
    start = threading.Barrier(THREADS)

    def work(index: int) -> list[tuple[AttentionOp, tuple[Tensor, ...]]]:
        start.wait()
        ops = [fagen.load(problem_spec(f"on_threads_{name}")) for name in ("shared", index)]
        return [(op, both_passes(op)) for op in ops]

    def both_passes(op: AttentionOp) -> tuple[Tensor, ...]:
        leaves = tuple(x.detach().requires_grad_() for x in inputs)
        out = op(*leaves)
        return out.detach(), *torch.autograd.grad(out, leaves, dout)

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(work, range(THREADS), timeout=SECONDS))
    assert len({shared for (shared, _), _ in results}) == 1
    assert len(builds) == 2 * (1 + THREADS) and set(builds.values()) == {1}
    problem = results[0][0][0].spec.problem
    exact = (
        reference.attention(problem, *inputs)[0],
        *reference_gradients.gradients(problem, *inputs, dout=dout),
    )
    for _, found in (one for result in results for one in result):
        for x, expected in zip(found, exact, strict=True):
            torch.testing.assert_close(x, expected.bfloat16())
