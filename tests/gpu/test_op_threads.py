"""First calls from many threads: one compilation of what they share, none of them waits for ever."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_cases import Cases
from torch import Tensor

import fagen
from fagen.compile import nvrtc
from fagen.compile.cache import ENV
from fagen.emu import host
from fagen.ops.reference_gradients import Gradients

SECONDS = 120  # for all of them together

Both = tuple[tuple[Tensor, Tensor], Gradients]  # (out, LSE), and what a gradient of out gives


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a spec's sources went through a compiler, with a cache that is empty at first."""
    monkeypatch.setenv(ENV, str(tmp_path))
    times: Counter[str] = Counter()

    def counted(module: Any, name: str) -> None:
        own = getattr(module, name)

        def compile_unit(unit: Any) -> Any:
            times[unit.source.name] += 1
            return own(unit)

        monkeypatch.setattr(module, name, compile_unit)

    counted(nvrtc, "_compile")
    counted(host, "_compile")
    return times


@contextmanager
def own_stream(cases: Cases) -> Iterator[None]:
    """A stream of the calling thread's, and a wait for it at the end; nothing in the emulator."""
    if cases.small:
        yield
        return
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()


def at_once(cases: Cases, work: Callable[[int], list[Both]], threads: int) -> Iterator[Both]:
    """What all threads got that began `work` together, each on its own stream."""
    start = threading.Barrier(threads)
    if not cases.small:
        torch.cuda.synchronize()

    def run(index: int) -> list[Both]:
        start.wait()
        with own_stream(cases):
            return work(index)

    with ThreadPoolExecutor(threads) as pool:
        for found in pool.map(run, range(threads), timeout=SECONDS):
            yield from found


def both_passes(op: Callable[..., Any], inputs: tuple[Tensor, ...], dout: Tensor) -> Both:
    leaves = tuple(x.detach().requires_grad_() for x in inputs)
    out, lse = op(*leaves, return_lse=True)
    return (out.detach(), lse.detach()), Gradients(*torch.autograd.grad(out, leaves, dout))


@pytest.mark.emulated("v1")
def test_ops(cases: Cases, compiled: Counter[str]) -> None:
    """One op that all threads share and, on a GPU, one of each thread's own; both passes."""
    threads, own = (4, 0) if cases.small else (16, 16)

    def op(name: str) -> Any:
        return cases.op(name=f"thread_{cases.family}_{name}", head_dim=64 if own else 16)

    shared = op("shared")
    inputs = cases.inputs(shared, 2, *((24, 24) if cases.small else (200, 200)), 2)
    dout = cases.dout(shared, *inputs)

    def work(index: int) -> list[Both]:
        ops = [shared, op(str(index))] if own else [shared]
        return [both_passes(one, inputs, dout) for one in ops]

    for result, gradients in at_once(cases, work, threads):
        cases.assert_result(shared, inputs, result)
        cases.assert_near(shared, inputs, gradients, dout=dout)
    assert len(compiled) == 1 + own
    assert set(compiled.values()) == {2}, "each pass once"


@pytest.mark.gpu
def test_attention(compiled: Counter[str]) -> None:
    """`fagen.attention` as all threads call it at once, and as only one does."""
    cases, threads = Cases("v2", emulated=False), 16
    calls = [partial(fagen.attention, mask="causal", softcap=100.0 + i) for i in range(1 + threads)]
    inputs = cases.inputs(cases.op(head_dim=64), 2, 200, 200, 4)
    dout = torch.ones_like(inputs[0])
    found = list(
        at_once(
            cases, lambda i: [both_passes(call, inputs, dout) for call in (calls[0], calls[1 + i])], threads
        )
    )
    leaves = tuple(x.detach().requires_grad_() for x in inputs)
    for i, (result, gradients) in enumerate(found):
        spec = fagen.explain(*leaves, **calls[0 if i % 2 == 0 else 1 + i // 2].keywords).spec
        assert spec is not None and compiled[spec.name] == 2, "each pass once"
        cases.assert_result(fagen.load(spec), inputs, result)
        cases.assert_near(fagen.load(spec), inputs, gradients, dout=dout)
    assert len(compiled) == 1 + threads
