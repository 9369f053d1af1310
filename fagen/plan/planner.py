"""From a spec to a plan: every schedule key that the spec leaves out is chosen, every key it gives is kept.

The search is a small grid. What does not fit the budget is dropped; of the rest, what leaves ptxas some
registers to schedule with goes first, ranked by the engines model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TypeVar

from fagen.errors import PlanError
from fagen.hw.arch import ARCHES, Arch
from fagen.hw.device import DEVICES, Device, default_device
from fagen.hw.dtypes import DTYPES
from fagen.plan import budget
from fagen.plan.budget import MAX_WARPS
from fagen.plan.engines import engines
from fagen.plan.ir import Account, Buffer, Plan, Tiling
from fagen.spec.model import Lazy, Spec

TILE_Q = (64, 128, 192, 256)
TILE_KV = (32, 48, 64, 96, 128)
ROWS_PER_WARP = (16, 32)  # one or two m16 tiles
STAGES = (2, 3, 4)
CTAS_PER_SM = (1, 2, 3, 4)
Q_OPERANDS = ("shared", "registers")
LAZY_RESCALE = 8.0  # FlashAttention-4's tau: a factor of 256 is far from overflowing fp32 or 16-bit P
ROOMY = 0.99  # of the registers allowed: above it ptxas spills more than a few loop invariants
NEAR = 0.03  # predictions closer than this are equal: the model is not that good


T = TypeVar("T")


def plan(spec: Spec, arch: str | None = None) -> Plan:
    """Resolve `spec` for its own arch, or for another one (a retarget, with that arch's default device).

    Raises PlanError if `arch` is unknown or cannot run the family, if the spec's device has another arch, or
    if no choice of the keys left open fits; the message then gives the budget of the one that came closest.
    """
    target = _arch(spec, arch)
    device = _device(spec, target)
    dim, dim_v = budget.pad16(spec.problem.head_dim), budget.pad16(spec.problem.dim_v)
    element_bytes = DTYPES[spec.problem.dtype].bytes

    fitting, nearest = [], None
    for tiling in _candidates(spec):
        at = budget.values(tiling, dim, dim_v, element_bytes, target)
        accounts = budget.accounts(tiling, at, target)
        overrun = max(a.used / a.allowed for a in accounts if a.resource not in _waived(spec))
        if overrun <= 1:
            fitting.append((tiling, accounts, engines(tiling, at, target, device)))
        elif nearest is None or overrun < nearest[0]:
            nearest = (overrun, tiling, at)
    if not fitting:
        if nearest is None:
            raise PlanError(
                f"{spec.name}: schedule.tile.q is {spec.schedule.tile.q}; allowed without roles.math.warps: "
                f"what up to {MAX_WARPS} warps split into {' or '.join(map(str, ROWS_PER_WARP))} rows each"
            )
        _, tiling, at = nearest
        raise PlanError(
            f"{_title(spec, target, tiling)}\n{budget.overrun(tiling, at, target, _waived(spec))}"
        )

    roomy = [choice for choice in fitting if _is_roomy(choice[1])] or fitting
    fastest = max(predicted.tflops for _, _, predicted in roomy)
    tiling, accounts, predicted = min(
        (choice for choice in roomy if choice[2].tflops >= (1 - NEAR) * fastest),
        key=lambda choice: _preference(choice[0]),
    )
    return Plan(
        spec=spec,
        arch=target,
        device=device,
        tiling=tiling,
        planned=tuple(key for key, value in _given(spec).items() if value is None),
        dim=dim,
        dim_v=dim_v,
        buffers=_buffers(tiling, dim, dim_v, element_bytes),
        accounts=accounts,
        engines=predicted,
    )


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


def _given(spec: Spec) -> dict[str, object]:
    schedule = spec.schedule
    return {
        "tile.q": schedule.tile.q,
        "tile.kv": schedule.tile.kv,
        "stages.kv": schedule.stages.kv,
        "roles.math.warps": schedule.roles.math.warps,
        "q_operand": schedule.q_operand,
        "ctas_per_sm": schedule.ctas_per_sm,
        "softmax.rescale": schedule.softmax.rescale,
        "scheduler": schedule.scheduler,
    }


def _candidates(spec: Spec) -> Iterator[Tiling]:
    schedule = spec.schedule
    for (q, warps), kv, stages, ctas, q_operand in product(
        _row_splits(schedule.tile.q, schedule.roles.math.warps),
        _choices(schedule.tile.kv, TILE_KV),
        _choices(schedule.stages.kv, STAGES),
        _choices(schedule.ctas_per_sm, CTAS_PER_SM),
        _choices(schedule.q_operand, Q_OPERANDS),
    ):
        yield Tiling(
            q=q,
            kv=kv,
            warps=warps,
            stages=stages,
            ctas_per_sm=ctas,
            q_operand=q_operand,
            lazy_rescale=_lazy_rescale(spec),
            scheduler=schedule.scheduler or _scheduler(spec),
        )


def _choices(given: T | None, choices: Sequence[T]) -> Sequence[T]:
    return choices if given is None else (given,)


def _row_splits(q: int | None, warps: int | None) -> list[tuple[int, int]]:
    """(tile.q, warps) pairs; a pair that the spec gives whole is taken as it is."""
    if q is not None and warps is not None:
        return [(q, warps)]
    if warps is not None:
        return [(rows * warps, warps) for rows in ROWS_PER_WARP]
    return [
        (rows_q, rows_q // rows)
        for rows_q in _choices(q, TILE_Q)
        for rows in ROWS_PER_WARP
        if rows_q % rows == 0 and rows_q // rows <= MAX_WARPS
    ]


def _lazy_rescale(spec: Spec) -> float | None:
    rescale = spec.schedule.softmax.rescale
    if rescale == "always":
        return None
    return rescale.lazy if isinstance(rescale, Lazy) else LAZY_RESCALE


def _scheduler(spec: Spec) -> str:
    return "longest_first" if spec.problem.mask == "causal" else "in_order"


def _is_roomy(accounts: tuple[Account, ...]) -> bool:
    return all(a.used <= ROOMY * a.allowed for a in accounts if a.resource == budget.REGISTERS)


def _waived(spec: Spec) -> tuple[str, ...]:
    return (budget.REGISTERS,) if "spills" in spec.schedule.allow else ()


def _preference(tiling: Tiling) -> tuple[int, ...]:
    """Among equals: small query tiles (more CTAs to balance), wide key tiles, few stages, Q shared."""
    return (
        tiling.q,
        -tiling.kv,
        tiling.stages,
        tiling.ctas_per_sm,
        tiling.warps,
        Q_OPERANDS.index(tiling.q_operand),
    )


def _buffers(tiling: Tiling, dim: int, dim_v: int, element_bytes: int) -> tuple[Buffer, ...]:
    buffers, offset = [], 0
    for name, rows, cols, stages in (
        ("q", tiling.q, max(dim, dim_v), 1),
        ("k", tiling.kv, dim, tiling.stages),
        ("v", tiling.kv, dim_v, tiling.stages),
    ):
        size = rows * cols * stages * element_bytes
        buffers.append(Buffer(name, offset, rows, cols, stages, size))
        offset += size
    return tuple(buffers)


def _title(spec: Spec, target: Arch, tiling: Tiling) -> str:
    def of(key: str, value: object) -> str:
        return f"{key} {value}" + (" (planned)" if _given(spec)[key] is None else "")

    choice = ", ".join(
        (
            of("tile.q", tiling.q),
            of("tile.kv", tiling.kv),
            of("roles.math.warps", tiling.warps),
            of("stages.kv", tiling.stages),
            of("ctas_per_sm", tiling.ctas_per_sm),
            of("q_operand", tiling.q_operand),
        )
    )
    return f"{spec.name}: schedule does not fit {target.name} with {choice}"
