"""What a bench measures: a spec's problem at one shape in one mode, and what the models say of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from fagen.bench.modes import MODES
from fagen.bench.shapes import NamedShape
from fagen.errors import ArgumentError, PlanError, SpecError
from fagen.plan import io
from fagen.plan.formulas import formula
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import Prediction, flops, predict
from fagen.spec.load import load_spec
from fagen.spec.model import Problem, Spec, Window

FLOPS = (
    "of the matrix products, visible (query, key) pairs only, whatever the mask: 2*(d + dv) per pair in the "
    "forward, 2*(3*d + 2*dv) in the backward, which is 2.5 times as many where d = dv; fwd+bwd: both"
)


@dataclass(frozen=True)
class Case:
    """One spec at one shape in one mode."""

    spec_name: str  # as its file says, without what the shape adds
    mode: str  # a key of MODES
    shape_name: str
    shape: Shape
    plans: tuple[Plan, ...]  # of the mode's passes, for the GPU that runs them

    @property
    def spec(self) -> Spec:
        """The spec with this shape's problem."""
        return self.plans[0].spec

    @property
    def mask(self) -> str:
        """The problem's mask in words."""
        return mask_in_words(self.spec.problem)

    @property
    def flops(self) -> int:
        """See FLOPS."""
        return sum(flops(one, self.shape) for one in self.plans)

    @cached_property
    def hbm_bytes(self) -> int:
        """Bytes over the memory bus, by the IO model."""
        wanted = ((formula(io.algorithm(one), one.direction, "HBM"), one) for one in self.plans)
        return sum(io.evaluate(bytes_of, io.setting(one, self.shape)) for bytes_of, one in wanted)

    @cached_property
    def predictions(self) -> tuple[Prediction, ...]:
        """What the plans' models say of each pass."""
        return tuple(predict(one, self.shape) for one in self.plans)

    @property
    def predicted_seconds(self) -> float:
        """Of all passes."""
        return sum(predicted.seconds for predicted in self.predictions)

    @property
    def predicted_tflops(self) -> float:
        """TFLOP/s that the models predict; 0 where nothing is computed."""
        return self.flops / self.predicted_seconds / 1e12 if self.flops else 0.0

    @property
    def bound(self) -> str:
        """What bounds the pass that is predicted to take longest: an engine, or "HBM"."""
        return max(self.predictions, key=lambda predicted: predicted.seconds).bound

    @property
    def tensor_flops_per_s(self) -> float:
        """The most that the device's tensor cores can do, whatever instruction the spec's kernels have."""
        device = self.plans[0].device
        return self.plans[0].arch.tensor_flops * device.sms * device.clock_hz

    def __str__(self) -> str:
        return f"{self.spec_name}, {self.shape_name}, {self.mode}"


@dataclass(frozen=True)
class Refusal:
    """A spec that cannot have one of the shapes, and why."""

    spec: str  # its name
    mode: str
    shape_name: str
    reason: str

    def __str__(self) -> str:
        first, *_ = self.reason.splitlines()
        return f"{self.spec}, {self.shape_name}, {self.mode}: left out: {first}"


def cases(
    specs: Iterable[Spec], shapes_of: Callable[[Spec], Sequence[NamedShape]], modes: Sequence[str], arch: str
) -> tuple[list[Case], list[Refusal]]:
    """Every spec at each of its shapes in each of `modes`, and what its schedule or family does not fit.

    Raises PlanError where a spec fits `arch` at none, ArgumentError where two have the same name.
    """
    specs = list(specs)
    if twice := [name for name, count in Counter(spec.name for spec in specs).items() if count > 1]:
        raise ArgumentError(f"SPEC: {twice[0]} is given twice; allowed: specs whose `name` differs")
    found: list[Case] = []
    refused: list[Refusal] = []
    for spec in specs:
        before = len(found)
        for named in shapes_of(spec):
            for mode in modes:
                try:
                    found.append(_case(spec, named, mode, arch))
                except (PlanError, SpecError) as error:
                    refused.append(Refusal(spec.name, mode, named.name, str(error)))
        if len(found) == before:
            raise PlanError(
                f"{spec.name} fits none of the shapes, e.g. {refused[-1].shape_name}: {refused[-1].reason}"
            )
    return found, refused


def _case(spec: Spec, named: NamedShape, mode: str, arch: str) -> Case:
    shaped = load_spec(spec, named.problem)
    if missing := [name for name in MODES[mode] if name not in shaped.problem.passes]:
        raise PlanError(f"problem.passes has no {missing[0]}, which mode {mode} needs")
    plans = tuple(plan(shaped, arch, direction) for direction in MODES[mode])
    case = Case(spec.name, mode, named.name, named.shape, plans)
    _ = case.predictions  # raises PlanError where the shape is too large to be launched
    return case


def mask_in_words(problem: Problem) -> str:
    """none, causal, or "window [128, null]"."""
    mask = problem.mask
    return f"window {json.dumps(mask.window)}" if isinstance(mask, Window) else mask
