"""One op on random inputs: how far it is from the reference, and how long it takes."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from fagen.bench.clock import CudaClock, interleaved
from fagen.bench.expected import expected, largest_difference, must_fit, random_inputs
from fagen.bench.machine import arch_of_device
from fagen.emu import settings
from fagen.ops.forward import AttentionOp
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import Prediction, predict

LSE_ALLOWED = 1e-3  # absolute


@dataclass(frozen=True)
class Trial:
    """What one op did on one device."""

    plan: Plan
    shape: Shape
    device: str  # product name; of the emulator the host's machine
    error: float  # largest absolute error of out against fp64
    allowed: float  # see ops.reference.allowed_error
    lse_error: float
    lse_allowed: float
    seconds: float  # median of device times, with the inputs in L2 where they fit; emulated: of the host's
    seeds: tuple[int, ...] = ()  # of the emulator's runs; empty: it ran on a GPU

    @property
    def right(self) -> bool:
        """Whether out and LSE are within what is allowed; NaN is not."""
        return self.error <= self.allowed and self.lse_error <= self.lse_allowed

    @property
    def prediction(self) -> Prediction:
        """What the plan's models say of this shape."""
        return predict(self.plan, self.shape)

    @property
    def tflops(self) -> float:
        """Arithmetic done per second, visible (query, key) pairs only."""
        return self.prediction.flops / self.seconds / 1e12


def trial(op: AttentionOp, shape: Shape, seed: int = 0, device: int = 0) -> Trial:
    """Run `op` on standard normal q, k, v of `shape` on CUDA device `device`.

    The reference goes one K/V head of one batch entry at a time and needs several times
    8 * heads_q / heads_kv * seqlen_q * seqlen_k bytes. Raises LaunchError where there is no such GPU,
    ArgumentError where that does not fit into its memory, and whatever the op raises.
    """
    arch = arch_of_device(device)
    problem = op.spec.problem
    with must_fit(shape), torch.cuda.device(device):
        inputs = random_inputs(problem, shape, seed, f"cuda:{device}")
        out, lse = op(*inputs, return_lse=True)
        exact = expected(problem, inputs)
        (times,) = interleaved([lambda: op(*inputs)], CudaClock())
        return Trial(
            plan=plan(op.spec, arch),
            shape=shape,
            device=torch.cuda.get_device_name(device),
            error=largest_difference(out, exact.out),
            allowed=exact.allowed,
            lse_error=largest_difference(lse, exact.lse),
            lse_allowed=LSE_ALLOWED,
            seconds=median(times),
        )


def emulated_trial(
    op: AttentionOp, shape: Shape, seed: int, seeds: Iterable[int], trace: Path | None = None
) -> Trial:
    """Run `op`, loaded with device "emu", on the same inputs under each of `seeds`; the worst errors count.

    `seed` is that of the inputs. `trace` takes the Chrome trace of the first run. Raises whatever the op
    raises.
    """
    problem = op.spec.problem
    inputs = random_inputs(problem, shape, seed, "cpu")
    exact = expected(problem, inputs)
    op.prepare()
    ran, errors, lse_errors, times = [], [], [], []
    for run in seeds:
        with settings.override(seed=run, trace=None if ran else trace):
            started = time.perf_counter()
            out, lse = op(*inputs, return_lse=True)
            times.append(time.perf_counter() - started)
        ran.append(run)
        errors.append(largest_difference(out, exact.out))
        lse_errors.append(largest_difference(lse, exact.lse))
    return Trial(
        plan=plan(op.spec, op.arch),
        shape=shape,
        device=platform.machine(),
        error=_worst(errors),
        allowed=exact.allowed,
        lse_error=_worst(lse_errors),
        lse_allowed=LSE_ALLOWED,
        seconds=median(times),
        seeds=tuple(ran),
    )


def _worst(errors: list[float]) -> float:
    """The largest; NaN if one is NaN."""
    return torch.tensor(errors, dtype=torch.float64).max().item()
