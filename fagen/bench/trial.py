"""One op on random inputs: how far each of its passes is from the reference, and how long it takes."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from fagen.bench.clock import CudaClock, interleaved
from fagen.bench.expected import (
    expected,
    expected_gradients,
    largest_difference,
    must_fit,
    random_inputs,
    random_like,
)
from fagen.bench.machine import arch_of_device
from fagen.emu import settings
from fagen.ops.op import AttentionOp
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import Prediction, predict

LSE_ALLOWED = 1e-3  # absolute
FP8_LSE_ALLOWED = 1e-2  # products of 8-bit numbers are summed with about 14 bits


@dataclass(frozen=True)
class Deviation:
    """How far one result is from the reference."""

    name: str
    error: float  # against fp64
    allowed: float  # see ops.reference
    measure: str = "largest error"

    @property
    def right(self) -> bool:
        """Whether the error is within what is allowed; NaN is not."""
        return self.error <= self.allowed


@dataclass(frozen=True)
class PassTrial:
    """What one pass of an op did."""

    plan: Plan
    shape: Shape
    deviations: tuple[Deviation, ...]
    seconds: float  # median of device times, with the inputs in L2 where they fit; emulated: of the host's

    @property
    def prediction(self) -> Prediction:
        """What the plan's models say of this shape."""
        return predict(self.plan, self.shape)

    @property
    def tflops(self) -> float:
        """Arithmetic done per second, visible (query, key) pairs only."""
        return self.prediction.flops / self.seconds / 1e12


@dataclass(frozen=True)
class Trial:
    """What one op did on one device."""

    passes: tuple[PassTrial, ...]  # in the order of problem.passes
    device: str  # product name; of the emulator the host's machine
    seeds: tuple[int, ...] = ()  # of the emulator's runs; empty: it ran on a GPU

    @property
    def deviations(self) -> tuple[Deviation, ...]:
        """Those of all passes."""
        return tuple(deviation for own in self.passes for deviation in own.deviations)

    @property
    def right(self) -> bool:
        """Whether all results are within what is allowed."""
        return all(deviation.right for deviation in self.deviations)


def trial(op: AttentionOp, shape: Shape, seed: int = 0, device: int = 0) -> Trial:
    """Run every pass of `op` on standard normal q, k, v (and dO) of `shape` on CUDA device `device`.

    The reference goes one K/V head of one batch entry at a time and needs several times
    8 * heads_q / heads_kv * seqlen_q * seqlen_k bytes. Raises LaunchError where there is no such GPU,
    ArgumentError where that does not fit into its memory, and whatever the op raises.
    """
    arch = arch_of_device(device)
    with must_fit(shape), torch.cuda.device(device):
        todo = _passes(op, shape, seed, f"cuda:{device}")
        errors = [own.errors() for own in todo]
        times = interleaved([own.run for own in todo], CudaClock())
        return Trial(
            passes=tuple(own.tried(arch, *found) for own, *found in zip(todo, errors, times, strict=True)),
            device=torch.cuda.get_device_name(device),
        )


def emulated_trial(
    op: AttentionOp, shape: Shape, seed: int, seeds: Iterable[int], trace: Path | None = None
) -> Trial:
    """Run `op`, loaded with device "emu", on the same inputs under each of `seeds`; the worst errors count.

    `seed` is that of the inputs. `trace` takes the Chrome trace of the first run's forward. Raises
    ArgumentError where these do not fit into memory, and whatever the op raises.
    """
    op.prepare()
    with must_fit(shape):
        todo = _passes(op, shape, seed, "cpu")
    ran: list[int] = []
    errors: list[list[tuple[float, ...]]] = [[] for _ in todo]
    times: list[list[float]] = [[] for _ in todo]
    for run in seeds:
        for own, own_errors, own_times in zip(todo, errors, times, strict=True):
            traced = trace if own.direction == "forward" and not ran else None
            with settings.override(seed=run, trace=traced):
                started = time.perf_counter()
                own_errors.append(own.errors())
                own_times.append(time.perf_counter() - started)
        ran.append(run)
    return Trial(
        passes=tuple(
            own.tried(op.arch, _worst(found), taken)
            for own, found, taken in zip(todo, errors, times, strict=True)
        ),
        device=platform.machine(),
        seeds=tuple(ran),
    )


@dataclass(frozen=True)
class _Pass:
    """A pass of an op on certain inputs, and what must come of it."""

    op: AttentionOp
    shape: Shape
    direction: str
    run: Callable[[], Iterable[Tensor]]
    names: tuple[str, ...]  # of the results
    error: tuple[Callable[[Tensor], float], ...]  # how far each is from what it must be
    allowed: tuple[float, ...]

    def errors(self) -> tuple[float, ...]:
        """Run it: the error of each result."""
        return tuple(error(found) for error, found in zip(self.error, self.run(), strict=True))

    def tried(self, arch: str | None, errors: Iterable[float], times: Iterable[float]) -> PassTrial:
        """What runs on `arch` gave: these errors, and these seconds."""
        is_fp8 = self.op.spec.problem.is_fp8
        deviations = (
            Deviation(*one, "relative error (L2)" if is_fp8 and one[0] == "out" else "largest error")
            for one in zip(self.names, errors, self.allowed, strict=True)
        )
        planned = plan(self.op.spec, arch, self.direction)
        return PassTrial(planned, self.shape, tuple(deviations), median(times))


def _passes(op: AttentionOp, shape: Shape, seed: int, device: str) -> tuple[_Pass, ...]:
    problem = op.spec.problem
    inputs = random_inputs(problem, shape, seed, device)
    exact = expected(problem, inputs)

    def forward() -> tuple[Tensor, Tensor]:
        return op(*inputs, return_lse=True)

    error = exact.error, partial(largest_difference, exact=exact.lse)
    allowed = exact.allowed, FP8_LSE_ALLOWED if problem.is_fp8 else LSE_ALLOWED
    passes = (_Pass(op, shape, "forward", forward, ("out", "LSE"), error, allowed),)
    if "backward" not in problem.passes:
        return passes

    leaves = tuple(x.detach().requires_grad_() for x in inputs[:3])
    out = op(*leaves, *inputs[3:])
    dout = random_like(out, seed + 1)
    backward = partial(torch.autograd.grad, out, leaves, dout, retain_graph=True)
    gradients = expected_gradients(problem, inputs, dout)
    names = ("dq", "dk", "dv")
    error = tuple(partial(largest_difference, exact=x) for x in gradients.exact)
    return *passes, _Pass(op, shape, "backward", backward, names, error, gradients.allowed)


def _worst(errors: list[tuple[float, ...]]) -> tuple[float, ...]:
    """The largest of each result; NaN if one is NaN."""
    return tuple(torch.tensor(errors, dtype=torch.float64).amax(dim=0).tolist())
