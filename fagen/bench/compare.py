"""A spec's op against its peers on the papers' cases: each contender is checked, then timed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from fagen.bench.clock import Clock, CudaClock, interleaved
from fagen.bench.expected import Expected, expected, largest_difference, must_fit, random_inputs
from fagen.bench.peers import Call, installed
from fagen.ops.load import load
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import forward_flops
from fagen.spec.load import load_spec
from fagen.spec.model import Spec, Window

OURS = "fagen"

# FlashAttention-2 (arXiv 2307.08691), section 4.1.
TOKENS = 16384
HIDDEN = 2048


@dataclass(frozen=True)
class Case:
    """One spec's problem with one mask at one length."""

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

    error: float | None = None  # largest absolute error of out; None: it gave none
    seconds: tuple[float, ...] = ()  # on the device, one per round; empty: not timed
    problem: str = ""  # why it was not timed

    @property
    def median(self) -> float | None:
        """Median time."""
        return median(self.seconds) if self.seconds else None


@dataclass(frozen=True)
class Result:
    """All contenders of one case, OURS among them."""

    case: Case
    allowed: float  # error
    outcomes: Mapping[str, Outcome]

    def tflops(self, name: str) -> float | None:
        """TFLOP/s of a contender, visible pairs only; None where it was not timed."""
        seconds = self.outcomes[name].median
        return None if seconds is None else forward_flops(self.case.plan, self.case.shape) / seconds / 1e12

    def ratio(self, peer: str) -> float | None:
        """How many times as fast as `peer` the op is; None where one of them was not timed."""
        ours, theirs = self.outcomes[OURS].median, self.outcomes[peer].median
        return None if ours is None or theirs is None else theirs / ours


def cases(specs: Iterable[Spec], seqlens: Sequence[int], arch: str) -> list[Case]:
    """Every spec at every length: about 16k tokens in all, hidden dimension about 2048.

    A spec with a sliding window keeps it; others come both without a mask and causal. Raises PlanError where
    one does not fit `arch`.
    """
    return [
        Case(spec.name, planned, _shape(length, spec.problem.head_dim))
        for spec in specs
        for planned in [plan(masked, arch) for masked in _masked(spec)]
        for length in seqlens
    ]


def _masked(spec: Spec) -> list[Spec]:
    if isinstance(spec.problem.mask, Window):
        return [spec]
    return [load_spec(spec, {"problem.mask": mask}) for mask in ("none", "causal")]


def _shape(length: int, head_dim: int) -> Shape:
    heads = HIDDEN // head_dim
    return Shape(max(1, TOKENS // length), length, length, heads, heads)


def run(case: Case) -> Result:
    """The case's op and all peers that are installed on the current GPU, on the same standard normal inputs.

    Raises ArgumentError where inputs and reference do not fit into the GPU's memory.
    """
    problem = case.spec.problem
    with must_fit(case.shape):
        inputs = random_inputs(problem, case.shape, seed=0, device="cuda")
        wanted = expected(problem, inputs)
    contenders: dict[str, Callable[[], Call]] = {OURS: lambda: partial(load(case.spec), *inputs)}
    contenders |= {name: partial(adapter, problem, *inputs[:3]) for name, adapter in installed().items()}
    return compare(case, wanted, contenders, CudaClock())


def compare(
    case: Case, wanted: Expected, contenders: Mapping[str, Callable[[], Call]], clock: Clock
) -> Result:
    """Set up and check each contender, then time those that are right (see bench.clock)."""
    calls: dict[str, Call] = {}
    outcomes: dict[str, Outcome] = {}
    for name, set_up in contenders.items():
        try:
            call = set_up()
            error = largest_difference(call(), wanted.out)
        except Exception as failure:  # libraries assert, too
            outcomes[name] = Outcome(problem=f"cannot run: {_first_line(failure)}")
            continue
        if error <= wanted.allowed:  # false for NaN
            outcomes[name], calls[name] = Outcome(error), call
        else:
            outcomes[name] = Outcome(error, problem=f"wrong: error {error:.2e}; allowed {wanted.allowed:.2e}")
    for name, seconds in zip(calls, interleaved(list(calls.values()), clock), strict=True):
        outcomes[name] = Outcome(outcomes[name].error, seconds)
    return Result(case, wanted.allowed, outcomes)


def _first_line(failure: Exception) -> str:
    return next(iter(str(failure).splitlines()), type(failure).__name__)
