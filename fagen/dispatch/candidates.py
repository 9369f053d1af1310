"""Specs that might compute a call: which can, how fast the model thinks they are, and why others cannot."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fagen.dispatch.problem import Request
from fagen.dispatch.target import Target
from fagen.dispatch.tuned import Source, Tuned
from fagen.errors import PlanError, SpecError
from fagen.hw.arch import ARCHES
from fagen.plan.efficiency import Efficiencies
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.planner import FAMILIES, plans
from fagen.plan.predict import predict
from fagen.spec.load import load_spec
from fagen.spec.model import Problem, Spec
from fagen.spec.shipped import shipped_specs
from fagen.tune.calibrated import efficiencies

STUDIED = "v1"
FOR_STUDY = "family v1 is there to be studied and is never picked; fagen.load makes its op"


@dataclass(frozen=True)
class Candidate:
    """A spec, and whether it can compute a call."""

    name: str  # what torch.ops.fagen has it under
    source: Source
    spec: Spec | None = None  # with the call's problem; None: there is none
    plans: tuple[Plan, ...] = field(default=(), repr=False)  # of all passes
    seconds: float = math.inf  # predicted for the passes that the call asks for
    refusal: str = ""  # why it is not eligible; "": it is
    measured: str = ""  # what `fagen tune` found it to be the fastest of; "": only the model ranks it


def candidates(
    request: Request, shape: Shape, target: Target, tuned: Sequence[Tuned] = ()
) -> tuple[Candidate, ...]:
    """The tuned specs, the shipped ones, one of each family as the planner makes it; times are of `shape`.

    A shipped spec keeps its schedule, which was picked by hand for its head sizes and 8 or 16 bits, and takes
    the rest of the problem and the device from the call. Of several that are the same kernels the first is
    eligible.
    """
    own = [_tuned(one, request.problem, target) for one in tuned]
    found: list[Candidate] = []
    calibrated = efficiencies(target.product)
    untuned = _untuned(request.problem, target)  # type: ignore[arg-type] # a frozen model has a hash
    for one in (*own, *untuned):
        twin = next((other for other in found if _same_kernels(one, other)), None)
        refused = replace(one, refusal=f"the same kernels as {twin.name}") if twin else one
        found.append(_timed(refused, request.passes, shape, calibrated))
    return tuple(found)


def _tuned(one: Tuned, problem: Problem, target: Target) -> Candidate:
    if one.refusal:
        return Candidate(one.spec.name, one.source, refusal=one.refusal)
    return replace(_planned(one.source, one.spec, problem, target), measured=one.why)


@functools.lru_cache(maxsize=256)
def _untuned(problem: Problem, target: Target) -> tuple[Candidate, ...]:
    """Planning costs more than all else of a choice, and does not depend on the shape."""
    return tuple(
        Candidate(name, source, refusal=base)
        if isinstance(base, str)
        else _planned(source, base, problem, target)
        for name, source, base in _bases(problem, target)
    )


def _bases(problem: Problem, target: Target) -> Iterator[tuple[str, Source, Spec | str]]:
    """Specs to lay the problem's keys over, or why not."""
    # The target's own device first: of twins that is the one to keep.
    for spec in sorted(shipped_specs(), key=lambda spec: spec.device != target.device.name):
        yield spec.name, "shipped", _refusal(spec, problem, target) or spec
    for family in dict.fromkeys(family for family, _ in FAMILIES):
        name = f"attention_{family}_{target.device.name}"
        yield name, "planned", _family_refusal(family, target) or _open_spec(name, family, target)


def _planned(source: Source, base: Spec, problem: Problem, target: Target) -> Candidate:
    """`base` for the problem: its name says what of that is not as in `base`."""
    overrides = {f"problem.{key}": value for key, value in problem.model_dump().items()}
    if source != "tuned":  # on this very GPU: what the planner made of it must not change
        overrides["device"] = target.device.name
    try:
        spec = load_spec(base, overrides)
        return Candidate(spec.name, source, spec, plans(spec))
    except SpecError as error:
        reasons = "; ".join(f"{issue.key} {issue.message}" for issue in error.issues)
        return Candidate(base.name, source, refusal=reasons)
    except PlanError as error:
        return Candidate(base.name, source, refusal=str(error))


def _timed(one: Candidate, passes: tuple[str, ...], shape: Shape, calibrated: Efficiencies) -> Candidate:
    if one.refusal:
        return one
    try:
        wanted = (plan for plan in one.plans if plan.direction in passes)
        seconds = sum(predict(plan, shape, calibrated).seconds for plan in wanted)
    except PlanError as error:  # the shape is not one for its kernels
        return replace(one, refusal=str(error))
    return replace(one, seconds=seconds)


@functools.cache
def _open_spec(name: str, family: str, target: Target) -> Spec:
    """A spec whose whole schedule the planner chooses."""
    problem = {"dtype": "bf16", "head_dim": 128}
    keys = {"name": name, "family": family, "arch": target.arch, "device": target.device.name}
    return load_spec(keys | {"problem": problem})


def _refusal(spec: Spec, problem: Problem, target: Target) -> str:
    """Why a shipped spec is no candidate, before anything is planned; "": it may be one."""
    if spec.arch != target.arch and spec.family != STUDIED:
        return f"is for {spec.arch}; this is {target.arch}"
    dims, wanted = ((own.head_dim, own.dim_v) for own in (spec.problem, problem))
    if dims != wanted and spec.family != STUDIED:
        return f"its schedule is for head_dim {_dims(dims)}; this call has {_dims(wanted)}"
    if spec.problem.is_fp8 and not problem.is_fp8:
        return f"its schedule is for {spec.problem.dtype}; this call has {problem.dtype}"
    return _family_refusal(spec.family, target)


def _family_refusal(family: str, target: Target) -> str:
    if family == STUDIED:
        return FOR_STUDY
    if family not in ARCHES[target.arch].families:
        arches = ", ".join(arch.name for arch in ARCHES.values() if family in arch.families)
        return f"family {family} is for {arches}; this is {target.arch}"
    return ""


def _dims(dims: tuple[int, int]) -> str:
    dim, dim_v = dims
    return str(dim) if dim == dim_v else f"{dim}, head_dim_v {dim_v}"


def _same_kernels(one: Candidate, other: Candidate) -> bool:
    return not (one.refusal or other.refusal) and _kernels(one) == _kernels(other)


def _kernels(one: Candidate) -> tuple[Any, ...]:
    return one.spec and one.spec.family, *(plan.tiling for plan in one.plans)
