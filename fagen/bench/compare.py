"""A pass of a spec's op against its peers on the papers' cases: each contender is checked, then timed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fagen.bench import passes
from fagen.bench.clock import ROUNDS, Clock, CudaClock, interleaved
from fagen.bench.expected import (
    Inputs,
    expected,
    expected_gradients,
    largest_difference,
    must_fit,
    random_inputs,
    random_like,
)
from fagen.bench.peers import Call, installed
from fagen.errors import FagenError
from fagen.ops.load import load
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import predict
from fagen.spec.load import load_spec
from fagen.spec.model import Problem, Spec, Window

OURS = "fagen"
DETERMINISTIC = "deterministic"  # the op with problem.deterministic

# FlashAttention-2 (arXiv 2307.08691), section 4.1.
TOKENS = 16384
HIDDEN = 2048


@dataclass(frozen=True)
class Case:
    """One pass of one spec's problem with one mask at one length."""

    spec_name: str  # as its file says, without what the mask adds
    plan: Plan  # for the GPU that runs it
    shape: Shape

    @property
    def spec(self) -> Spec:
        """The spec with this case's mask."""
        return self.plan.spec

    @property
    def mask(self) -> str:
        """The spec's mask in words."""
        mask = self.spec.problem.mask
        return f"window {json.dumps(mask.window)}" if isinstance(mask, Window) else mask

    def __str__(self) -> str:
        return f"{self.spec_name}, mask {self.mask}, S {self.shape.seqlen_q}"


@dataclass(frozen=True)
class Outcome:
    """What one contender did in one case."""

    error: float | None = None  # see Check; None: it gave no result
    seconds: tuple[float, ...] = ()  # on the device, one per round; empty: not timed
    problem: str = ""  # why it was not timed

    @property
    def median(self) -> float | None:
        """Median time."""
        return median(self.seconds) if self.seconds else None


class Check(NamedTuple):
    """How far a result is from the reference.

    In a forward: the largest absolute error of out. In a backward: that of the worst gradient, as a share of
    what it may have.
    """

    error: Callable[[Any], float]
    allowed: float


@dataclass(frozen=True)
class Result:
    """All contenders of one case."""

    case: Case
    allowed: float  # error
    outcomes: Mapping[str, Outcome]

    def tflops(self, name: str) -> float | None:
        """TFLOP/s of a contender, visible pairs only; None where it was not timed."""
        seconds = self.outcomes[name].median
        return None if seconds is None else predict(self.case.plan, self.case.shape).flops / seconds / 1e12

    def ratio(self, peer: str, contender: str = OURS) -> float | None:
        """How many times as fast as `peer` the contender is; None where one of them was not timed."""
        ours, theirs = self.outcomes[contender].median, self.outcomes[peer].median
        return None if ours is None or theirs is None else theirs / ours


def cases(specs: Iterable[Spec], seqlens: Sequence[int], arch: str, direction: str = "forward") -> list[Case]:
    """A pass of every spec at every length: about 16k tokens in all, hidden dimension about 2048.

    A spec with a sliding window keeps it; others come both without a mask and causal. Raises PlanError where
    one does not fit `arch`.
    """
    return [
        Case(spec.name, planned, _shape(length, spec.problem.head_dim))
        for spec in specs
        for planned in [plan(masked, arch, direction) for masked in _masked(spec)]
        for length in seqlens
    ]


def _masked(spec: Spec) -> list[Spec]:
    if isinstance(spec.problem.mask, Window):
        return [spec]
    return [load_spec(spec, {"problem.mask": mask}) for mask in ("none", "causal")]


def _shape(length: int, head_dim: int) -> Shape:
    heads = HIDDEN // head_dim
    return Shape(max(1, TOKENS // length), length, length, heads, heads)


def build(todo: Iterable[Case]) -> None:
    """Build the cases' kernels for the current GPU, several at a time, which they wait for otherwise.

    What cannot be built is left to `run`, which says why.
    """
    specs = {spec.name: spec for case in todo for spec in _modes(case).values()}

    def one(spec: Spec) -> None:
        with suppress(FagenError):
            load(spec).prepare()

    with ThreadPoolExecutor() as pool:
        pool.map(one, specs.values())


def _modes(case: Case) -> dict[str, Spec]:
    """The op's contenders: as it is, and in a backward with problem.deterministic."""
    if case.plan.direction == "forward":
        return {OURS: case.spec}
    return {OURS: case.spec, DETERMINISTIC: load_spec(case.spec, {"problem.deterministic": True})}


def run(case: Case) -> Result:
    """The case's op and all peers that are installed on the current GPU, on the same standard normal inputs.

    In a backward also the op with problem.deterministic. Raises ArgumentError where inputs and reference do
    not fit into the GPU's memory.
    """
    forward = case.plan.direction == "forward"
    problem = case.spec.problem
    with must_fit(case.shape):
        inputs = random_inputs(problem, case.shape, seed=0, device="cuda")
        qkv = inputs[:3]
        dout = random_like(qkv[0].new_empty((*qkv[0].shape[:-1], problem.dim_v)), seed=1)
        check = _check(problem, inputs) if forward else _check_gradients(problem, inputs, dout)
    contenders: dict[str, Callable[[], Call]] = {
        name: partial(_ours, spec, inputs) for name, spec in _modes(case).items()
    }
    contenders |= {name: partial(adapter, problem, *qkv) for name, adapter in installed().items()}
    if not forward:
        contenders = {name: partial(_backward, set_up, qkv, dout) for name, set_up in contenders.items()}
    return compare(case, check, contenders, CudaClock())


def _ours(spec: Spec, inputs: Inputs) -> Call:
    return partial(load(spec), *inputs)


def _backward(set_up: Callable[[], Call], inputs: Sequence[Tensor], dout: Tensor) -> Call:
    return passes.backward(set_up(), inputs, dout)


def _check(problem: Problem, inputs: Inputs) -> Check:
    wanted = expected(problem, inputs)
    return Check(lambda out: largest_difference(out, wanted.out), wanted.allowed)


def _check_gradients(problem: Problem, inputs: Inputs, dout: Tensor) -> Check:
    wanted = expected_gradients(problem, inputs, dout)

    def error(found: Sequence[Tensor]) -> float:
        errors, allowed = torch.tensor(wanted.errors(found)), torch.tensor(wanted.allowed)
        return (errors / allowed).max().item()  # NaN where one is

    return Check(error, 1.0)


def compare(
    case: Case,
    check: Check,
    contenders: Mapping[str, Callable[[], Call]],
    clock: Clock,
    rounds: int = ROUNDS,
) -> Result:
    """Set up and check each contender, then time those that are right, `rounds` times (see bench.clock)."""
    calls: dict[str, Call] = {}
    outcomes: dict[str, Outcome] = {}
    for name, set_up in contenders.items():
        try:
            call = set_up()
            error = check.error(call())
        except Exception as failure:  # libraries assert, too
            outcomes[name] = Outcome(problem=f"cannot run: {_first_line(failure)}")
            continue
        if error <= check.allowed:  # false for NaN
            outcomes[name], calls[name] = Outcome(error), call
        else:
            outcomes[name] = Outcome(error, problem=f"wrong: error {error:.2e}; allowed {check.allowed:.2e}")
    for name, seconds in zip(calls, interleaved(list(calls.values()), clock, rounds), strict=True):
        outcomes[name] = Outcome(outcomes[name].error, seconds)
    return Result(case, check.allowed, outcomes)


def _first_line(failure: Exception) -> str:
    return next(iter(str(failure).splitlines()), type(failure).__name__)
