"""One op on random inputs: how far it is from the reference, and how long it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from fagen.errors import ArgumentError, LaunchError
from fagen.hw.arch import arch_of_capability
from fagen.ops import reference
from fagen.ops.checks import torch_dtype
from fagen.ops.forward import AttentionOp
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import Prediction, predict
from fagen.spec.model import Problem

WARM_UP = 3
REPEATS = 20

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Trial:
    """What one op did on one device."""

    plan: Plan
    shape: Shape
    device: str  # product name
    error: float  # largest absolute error of out against fp64
    allowed: float  # see ops.reference.allowed_error
    lse_error: float
    lse_allowed: float
    seconds: float  # median of device times, with the inputs in L2 where they fit

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

    The reference goes one batch entry at a time and needs several times 8 * heads_q * seqlen_q * seqlen_k
    bytes. Raises LaunchError where there is no such GPU, ArgumentError where that does not fit into its
    memory, and whatever the op raises.
    """
    _check_device(device)
    try:
        return _trial(op, shape, seed, device)
    except torch.OutOfMemoryError as error:
        scores = 8 * shape.heads_q * shape.seqlen_q * shape.seqlen_k
        raise ArgumentError(
            f"shape: is {shape}; allowed: what fits into the GPU's memory together with the fp64 reference, "
            f"which takes several times {scores:,} bytes here"
        ) from error


def _trial(op: AttentionOp, shape: Shape, seed: int, device: int) -> Trial:
    problem = op.spec.problem
    inputs = random_inputs(problem, shape, seed, device)
    out, lse = op(*inputs, return_lse=True)
    exact, exact_lse = _by_entry(lambda *qkv: reference.attention(problem, *qkv), inputs)
    (plain,) = _by_entry(lambda *qkv: (reference.plain_attention(problem, *qkv),), inputs)
    arch = arch_of_capability(torch.cuda.get_device_capability(device))
    return Trial(
        plan=plan(op.spec, arch.name),
        shape=shape,
        device=torch.cuda.get_device_name(device),
        error=largest_difference(out, exact),
        allowed=reference.allowed_error(problem, plain, exact),
        lse_error=largest_difference(lse, exact_lse),
        lse_allowed=1e-3,
        seconds=device_seconds(lambda: op(*inputs), device),
    )


def random_inputs(problem: Problem, shape: Shape, seed: int, device: int) -> Tensors:
    """Standard normal q, k and v in the problem's layout and dtype."""
    generator = torch.Generator(device=f"cuda:{device}").manual_seed(seed)

    def tensor(length: int, heads: int, dim: int) -> Tensor:
        middle = (length, heads) if problem.layout == "bshd" else (heads, length)
        sizes = (shape.batch, *middle, dim)
        return torch.randn(sizes, generator=generator, device=generator.device).to(torch_dtype(problem))

    return (
        tensor(shape.seqlen_q, shape.heads_q, problem.head_dim),
        tensor(shape.seqlen_k, shape.heads_kv, problem.head_dim),
        tensor(shape.seqlen_k, shape.heads_kv, problem.dim_v),
    )


def device_seconds(call: Callable[[], object], device: int) -> float:
    """Median time of `call` on the device, by CUDA events, after a warm-up."""
    with torch.cuda.device(device):
        for _ in range(WARM_UP):
            call()
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(REPEATS)]
        for start, end in events:
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
    return median(start.elapsed_time(end) for start, end in events) / 1e3


def largest_difference(found: Tensor, exact: Tensor) -> float:
    """Largest absolute difference; 0 where both are the same infinity, NaN if either is NaN."""
    if exact.numel() == 0:
        return 0.0
    found = found.to(exact.dtype)
    return torch.where(found == exact, 0.0, (found - exact).abs()).max().item()


def _by_entry(compute: Callable[..., Tensors], inputs: Tensors) -> Tensors:
    """`compute` one batch entry at a time, to keep its score matrices small."""
    entries = [compute(*(x[i : i + 1] for x in inputs)) for i in range(inputs[0].shape[0])]
    return tuple(torch.cat(parts) for parts in zip(*entries, strict=True))


def _check_device(device: int) -> None:
    count = torch.cuda.device_count()
    if count == 0:
        why = "is a build without CUDA" if torch.version.cuda is None else "finds none"
        raise LaunchError(
            f"running a kernel needs an NVIDIA GPU, and PyTorch {torch.__version__} {why}; `fagen doctor` "
            "says what is missing, `fagen plan` and `fagen build` work without one"
        )
    if not 0 <= device < count:
        raise LaunchError(f"device: is {device}; allowed: 0 to {count - 1}")
