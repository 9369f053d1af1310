"""Rules that tie several keys of a spec together; what one key may be is in `model.py`."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Collection, Iterator
from typing import Any

from pydantic import ValidationError

from fagen.errors import did_you_mean
from fagen.hw.arch import ARCHES
from fagen.hw.device import DEVICES
from fagen.spec.findings import Finding, findings, overlap
from fagen.spec.model import Schedule, Spec
from fagen.spec.schema import leaves, schema_of

ROWS_PER_WARP = (16, 32, 64)  # one, two or four m16n8k16 tiles of mma.sync
TAKEN_BY_TORCH = ("name",)  # what a namespace of torch.ops holds besides its ops

Rule = Callable[[Spec], Iterator[Finding]]
_RULES: list[tuple[tuple[str, ...], Rule]] = []


def check(spec: Spec, unknown: Collection[str] = ()) -> list[Finding]:
    """Everything in `spec` that breaks a rule; rules that read a key in `unknown` are left out."""
    return [
        finding
        for keys, rule in _RULES
        if not any(overlap(key, unknown) for key in keys)
        for finding in rule(spec)
    ]


def _reads(*keys: str) -> Callable[[Rule], Rule]:
    """Registers a rule, with the keys that it reads."""

    def register(rule: Rule) -> Rule:
        _RULES.append((keys, rule))
        return rule

    return register


@_reads("name")
def _name_can_be_imported(spec: Spec) -> Iterator[Finding]:
    if keyword.iskeyword(spec.name):
        yield Finding("name", f"is the Python keyword `{spec.name}`; allowed: names that Python can import")
    if spec.name in TAKEN_BY_TORCH:
        yield Finding("name", f"is `{spec.name}`, which torch.ops.fagen has already; allowed: any other name")


@_reads("family", "arch")
def _arch_runs_family(spec: Spec) -> Iterator[Finding]:
    if spec.family not in ARCHES[spec.arch].families:
        arches = ", ".join(arch.name for arch in ARCHES.values() if spec.family in arch.families)
        yield Finding("arch", f"is {spec.arch}; allowed for family {spec.family}: {arches}")


@_reads("arch", "device")
def _device_is_of_arch(spec: Spec) -> Iterator[Finding]:
    if spec.device and DEVICES[spec.device].arch != spec.arch:
        devices = ", ".join(device.name for device in DEVICES.values() if device.arch == spec.arch)
        is_arch = DEVICES[spec.device].arch
        yield Finding("device", f"is {spec.device}, which is {is_arch}; allowed for {spec.arch}: {devices}")


@_reads("problem.passes", "schedule.allow")
def _lists_do_not_repeat(spec: Spec) -> Iterator[Finding]:
    yield from _repeats("problem.passes", spec.problem.passes)
    yield from _repeats("schedule.allow", spec.schedule.allow)


@_reads("schedule.tile.q", "schedule.roles.math.warps")
def _warps_split_the_rows_of_q(spec: Spec) -> Iterator[Finding]:
    rows, warps = spec.schedule.tile.q, spec.schedule.roles.math.warps
    if rows and warps and rows not in (fits := [warps * each for each in ROWS_PER_WARP]):
        yield Finding(
            "schedule.tile.q",
            f"is {rows}, which schedule.roles.math.warps: {warps} does not split into 16, 32 or 64 rows; "
            f"allowed with {warps} warps: {', '.join(map(str, fits))}",
        )


@_reads()
def _tune_lists_schedule_values(spec: Spec) -> Iterator[Finding]:
    known = leaves(schema_of(Schedule))
    for key, values in spec.tune.items():
        where = f"tune.{key}"
        if key not in known:
            hint = did_you_mean(key.removeprefix("schedule."), known)
            yield Finding(where, f"is not a schedule key; allowed: {', '.join(known)}", hint)
            continue
        if not values:
            yield Finding(where, "is an empty list; allowed: a list of at least 1 value to try")
        for index, value in enumerate(values):
            for finding in _schedule_findings(key, value):
                yield finding._replace(key=f"{where}[{index}]{finding.key.removeprefix(key)}")
        yield from _repeats(where, values)


def _schedule_findings(key: str, value: Any) -> list[Finding]:
    """What is wrong with `value` for a schedule key."""
    data = value
    for name in reversed(key.split(".")):
        data = {name: data}
    try:
        Schedule.model_validate(data)
    except ValidationError as error:
        return findings(error, Schedule)
    return []


def _repeats(key: str, values: tuple[Any, ...]) -> Iterator[Finding]:
    for index, value in enumerate(values):
        if value in values[:index]:
            yield Finding(f"{key}[{index}]", f"gives {value} again; allowed: each value once")
