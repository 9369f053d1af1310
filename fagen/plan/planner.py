"""From a spec to a plan: every schedule key that the spec leaves out is chosen, every key it gives is kept.

The search is a small grid. What does not fit the budget is dropped; of the rest, what leaves ptxas some
registers to schedule with goes first, ranked by the engines model.
"""

from __future__ import annotations

from dataclasses import replace

from fagen.errors import PlanError
from fagen.hw.arch import ARCHES, Arch
from fagen.hw.device import DEVICES, Device, default_device
from fagen.hw.dtypes import DTYPES
from fagen.plan import budget, v1, v2, v2_backward, v3
from fagen.plan.family import RESOLVED, Family
from fagen.plan.ir import Account, Plan, Tiling
from fagen.plan.pipeline import Pipeline
from fagen.spec.model import Spec

FAMILIES: dict[tuple[str, str], Family] = {  # by family and pass
    ("v1", "forward"): v1.FORWARD,
    ("v1", "backward"): v1.BACKWARD,
    ("v2", "forward"): v2.FAMILY,
    ("v2", "backward"): v2_backward.FAMILY,
    ("v3", "forward"): v3.FAMILY,
    ("v3", "backward"): v2_backward.FAMILY,
}

PASSES = ("forward", "backward")

ROOMY = 0.99  # of the registers allowed: above it ptxas spills more than a few loop invariants
NEAR = 0.03  # predictions closer than this are equal: the model is not that good


def plan(spec: Spec, arch: str | None = None, direction: str = "forward") -> Plan:
    """Resolve a pass of `spec`, for its own arch or for another one (with that arch's default device).

    Raises PlanError if `arch` is unknown or cannot run the family, if the spec's device has another arch, or
    if no choice of the keys left open fits; the message then gives the budget of the one that came closest.
    """
    target = _arch(spec, arch)
    device = _device(spec, target)
    if (spec.family, direction) not in FAMILIES:
        raise PlanError(f"{spec.name}: family {spec.family} is not there yet ({direction})")
    family = FAMILIES[spec.family, direction]
    dim, dim_v = family.pad(spec.problem.head_dim), family.pad(spec.problem.dim_v)
    element_bytes = DTYPES[spec.problem.dtype].bytes
    waived = (family.budget.registers,) if "spills" in spec.schedule.allow else ()

    fitting, nearest = [], None
    for tiling in family.candidates(spec, target):
        at = budget.values(tiling, dim, dim_v, element_bytes, target)
        accounts = family.budget.accounts(tiling, at, target)
        overrun = max(a.used / a.allowed for a in accounts if a.resource not in waived)
        if overrun <= 1:
            # As without dropout: the same schedule, so that dropout_p = 0 gives the same bits.
            undropped = replace(tiling, dropout=False)
            fitting.append((tiling, accounts, family.predict(undropped, at, target, device)))
        elif nearest is None or overrun < nearest[0]:
            nearest = (overrun, tiling, at)
    if not fitting:
        assert nearest is not None  # there are candidates
        _, tiling, at = nearest
        title = f"{spec.name}: schedule does not fit {target.name} with {_sizes(spec, family, tiling)}"
        raise PlanError(f"{title}\n{family.budget.overrun(tiling, at, target, waived)}")

    roomy = [choice for choice in fitting if _is_roomy(family, choice[1])] or fitting
    fastest = max(predicted.tflops for _, _, predicted in roomy)
    tiling, accounts, _ = min(
        (choice for choice in roomy if choice[2].tflops >= (1 - NEAR) * fastest),
        key=lambda choice: family.preference(choice[0]),
    )
    at = budget.values(tiling, dim, dim_v, element_bytes, target)
    return Plan(
        spec=spec,
        direction=direction,
        arch=target,
        device=device,
        tiling=tiling,
        planned=tuple(key for key, value in family.given(spec.schedule).items() if value is None),
        dim=dim,
        dim_v=dim_v,
        buffers=family.buffers(tiling, dim, dim_v, element_bytes),
        barriers=family.barriers(tiling),
        accounts=accounts,
        engines=family.predict(
            tiling, budget.values(tiling, dim, dim_v, element_bytes, target), target, device
        ),
    )


def plans(spec: Spec, arch: str | None = None) -> tuple[Plan, ...]:
    """The plans of all passes that `spec` has, the forward first. Raises PlanError, as `plan` does."""
    return tuple(plan(spec, arch, direction) for direction in PASSES if direction in spec.problem.passes)


def pipeline(plan: Plan) -> Pipeline:
    """The roles of a plan's kernel that multiplies, and what passes between them."""
    return FAMILIES[plan.spec.family, plan.direction].pipeline(plan)


def _arch(spec: Spec, arch: str | None) -> Arch:
    name = spec.arch if arch is None else arch
    if name not in ARCHES:
        raise PlanError(f"{spec.name}: arch is {name!r}; allowed: {', '.join(ARCHES)}")
    target = ARCHES[name]
    if spec.family not in target.families:
        raise PlanError(
            f"{spec.name}: family is {spec.family!r}; allowed on {name}: {', '.join(target.families)}"
        )
    return target


def _device(spec: Spec, target: Arch) -> Device:
    if spec.device is None:
        return default_device(target.name)
    device = DEVICES[spec.device]
    if device.arch == target.name:
        return device
    if target.name == spec.arch:
        fitting = ", ".join(d.name for d in DEVICES.values() if d.arch == target.name)
        raise PlanError(f"{spec.name}: device is {device.name!r}, which is {device.arch}; allowed: {fitting}")
    return default_device(target.name)


def _is_roomy(family: Family, accounts: tuple[Account, ...]) -> bool:
    return all(a.used <= ROOMY * a.allowed for a in accounts if a.resource == family.budget.registers)


def _sizes(spec: Spec, family: Family, tiling: Tiling) -> str:
    """What decides whether a tiling fits, e.g. "tile.q 128, tile.kv 64 (planned)"."""
    given = family.given(spec.schedule)
    return ", ".join(
        f"{key} {RESOLVED[key](tiling)}" + (" (planned)" if given[key] is None else "")
        for key in family.sizes
    )
