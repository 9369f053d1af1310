"""Rules that tie several keys of a spec together; what one key may be is in `model.py`."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Collection, Iterator
from functools import partial, reduce
from typing import Any

from pydantic import BaseModel, ValidationError

from fagen.errors import did_you_mean
from fagen.hw.arch import ARCHES
from fagen.hw.device import DEVICES
from fagen.spec.findings import Finding, findings, overlap
from fagen.spec.fp8_rules import FP8_RULES
from fagen.spec.model import Growth, Lazy, Schedule, Spec
from fagen.spec.schema import leaves, schema_of

ROWS_PER_WARP = {
    "v1": (16, 32, 64),
    "v2": (16, 32, 64),  # one, two or four m16n8k16 tiles of mma.sync
    "v3": (16,),  # a quarter of the 64 rows that wgmma takes
}
_V3_KEYS = (
    "stages.q",
    "roles.load.registers",
    "roles.math.registers",
    "roles.math.pingpong",
    "roles.math.overlap",
    "cluster",
    "pack_gqa",
    "accumulate.promote_every",
)
_V2_KEYS = ("stages.kv", "q_operand", "ctas_per_sm", "softmax.exp2", "softmax.rescale", "scheduler")
_BACKWARD_KEYS = tuple(key for key in leaves(schema_of(Schedule)) if key.startswith("backward."))
# What a family takes of a schedule key, where not all that the model takes; nothing: it has no such key.
# A mapping goes by its key.
_TAKES: dict[str, dict[str, tuple[Any, ...]]] = {
    "v1": dict.fromkeys((*_V2_KEYS, *_V3_KEYS, *_BACKWARD_KEYS), ()),
    "v2": {
        "scheduler": ("in_order", "longest_first"),
        "softmax.rescale": ("always", "lazy"),
        **dict.fromkeys(_V3_KEYS, ()),
    },
    "v3": {
        "tile.q": (64, 128, 192),
        "roles.math.warps": (4, 8, 12),
        "ctas_per_sm": (1,),
        "q_operand": (),
    },
}
# The same of the problem's keys.
_COMPUTES: dict[str, dict[str, tuple[Any, ...]]] = {
    "v1": {"dtype": ("fp16", "bf16"), "layout": ("bshd", "bhsd"), "softcap": (), "dropout": (False,)},
    "v2": {"dtype": ("fp16", "bf16")},
    "v3": {"dropout": (False,)},
}
# P may grow to 2^growth: 2^16 is infinite in fp16; the largest e4m3, which an 8-bit P always has, is 448.
MAX_GROWTH = {"fp16": 15, "bf16": 60, "e4m3": 8, "e5m2": 8}
TAKEN_BY_TORCH = ("name",)  # what a namespace of torch.ops holds besides its ops

Rule = Callable[[Spec], Iterator[Finding]]
_RULES: list[tuple[tuple[str, ...], Rule]] = [*FP8_RULES]


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


@_reads("problem.passes")
def _a_backward_needs_its_forward(spec: Spec) -> Iterator[Finding]:
    if "forward" not in spec.problem.passes:
        yield Finding("problem.passes", "lacks forward; allowed: [forward], [forward, backward]")


def _family_takes(section: str, key: str, spec: Spec) -> Iterator[Finding]:
    value = reduce(getattr, key.split("."), getattr(spec, section))
    if value is not None and (
        message := _not_taken(_SECTIONS[section][spec.family], spec.family, key, value)
    ):
        yield Finding(f"{section}.{key}", message)


_SECTIONS = {"schedule": _TAKES, "problem": _COMPUTES}
for _section, _families in _SECTIONS.items():
    for _key in dict.fromkeys(key for takes in _families.values() for key in takes):
        _reads("family", f"{_section}.{_key}")(partial(_family_takes, _section, _key))


def _not_taken(takes: dict[str, tuple[Any, ...]], family: str, key: str, value: Any) -> str:
    """What is wrong with a sound value of a key in a family that takes these; empty: nothing."""
    taken, word = takes.get(key), _word(value)
    if taken is None or word in taken:
        return ""
    if not taken:
        return f"is not a key of family {family}; allowed: leaving it out"
    return f"is {_yaml(word)}; allowed for family {family}: {', '.join(map(_yaml, taken))}"


def _word(value: Any) -> Any:
    """A value, or the key of a mapping with one."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    return next(iter(value)) if isinstance(value, dict) else value


def _yaml(word: Any) -> str:
    return str(word).lower() if isinstance(word, bool) else str(word)


@_reads("family", "schedule.tile.q", "schedule.roles.math.warps")
def _warps_split_the_rows_of_q(spec: Spec) -> Iterator[Finding]:
    rows, warps = spec.schedule.tile.q, spec.schedule.roles.math.warps
    each = ROWS_PER_WARP[spec.family]
    if rows and warps and rows not in (fits := [warps * some for some in each]):
        *most, last = map(str, each)
        split = " or ".join([", ".join(most), last] if most else [last])
        yield Finding(
            "schedule.tile.q",
            f"is {rows}, which schedule.roles.math.warps: {warps} does not split into {split} rows; "
            f"allowed with {warps} warps: {', '.join(map(str, fits))}",
        )


@_reads("problem.layout", "schedule.pack_gqa")
def _packed_tokens(spec: Spec) -> Iterator[Finding]:
    if spec.problem.layout == "thd" and spec.schedule.pack_gqa:
        yield Finding("schedule.pack_gqa", "is true with problem.layout: thd; allowed: false")


@_reads("schedule.backward.tile", "schedule.backward.warps")
def _warps_split_the_backward(spec: Spec) -> Iterator[Finding]:
    tile, warps = spec.schedule.backward.tile, spec.schedule.backward.warps
    for key, rows, count in (("q", tile.q, warps.q), ("kv", tile.kv, warps.kv), ("q", tile.q, warps.dq)):
        if rows and count and rows % (16 * count):
            yield Finding(
                f"schedule.backward.tile.{key}",
                f"is {rows}, which {count} warps do not split into multiples of 16 rows; "
                f"allowed with {count} warps: multiples of {16 * count}",
            )
    if warps.q and warps.kv and warps.dq and warps.q * warps.kv % warps.dq:
        yield Finding(
            "schedule.backward.warps.dq",
            f"is {warps.dq}; allowed with {warps.q} x {warps.kv} warps: divisors of {warps.q * warps.kv}",
        )


@_reads("schedule.tile.q", "schedule.roles.math.warps", "schedule.roles.math.pingpong")
def _one_warpgroup_takes_no_turns(spec: Spec) -> Iterator[Finding]:
    math = spec.schedule.roles.math
    if math.pingpong and (spec.schedule.tile.q == 64 or math.warps == 4):
        message = "is true with one math warpgroup (4 warps, 64 rows of Q); allowed: false"
        yield Finding("schedule.roles.math.pingpong", message)


@_reads("problem.dtype", "schedule.softmax.rescale")
def _p_stays_below_infinity(spec: Spec) -> Iterator[Finding]:
    rescale = spec.schedule.softmax.rescale
    most = MAX_GROWTH[spec.problem.dtype]
    for kind, key in ((Lazy, "lazy"), (Growth, "growth")):
        if isinstance(rescale, kind) and (growth := getattr(rescale, key)) > most:
            message = f"is {growth:g} with problem.dtype: {spec.problem.dtype}; allowed: up to {most}"
            yield Finding(f"schedule.softmax.rescale.{key}", message)


@_reads("schedule.scheduler", "schedule.cluster")
def _clusters_take_no_counter(spec: Spec) -> Iterator[Finding]:
    if spec.schedule.scheduler == "persistent_lpt" and spec.schedule.cluster == 2:
        others = "in_order, longest_first, persistent"
        message = f"is persistent_lpt with schedule.cluster: 2; allowed with a cluster: {others}"
        yield Finding("schedule.scheduler", message)


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


@_reads("family")
def _tune_lists_values_that_the_family_takes(spec: Spec) -> Iterator[Finding]:
    known = leaves(schema_of(Schedule))
    for key, values in spec.tune.items():
        for index, value in enumerate(values if key in known else ()):
            sound = value is not None and not _schedule_findings(key, value)
            if sound and (message := _not_taken(_TAKES[spec.family], spec.family, key, value)):
                yield Finding(f"tune.{key}[{index}]", message)


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
