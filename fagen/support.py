"""What is supported where: every feature, on every architecture, for every family of kernels.

Nothing here is a claim. Whether a feature is refused, and why, is what the spec's rules and the planner say
to a spec that asks for it; that it compiles is checked by tests/cli/test_support.py; that it runs, on
hardware or in the emulator, is written to support_results.json by tests/cli/test_support_runs.py.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, get_args

from fagen.errors import EmitError, PlanError, SpecError
from fagen.hw.arch import ARCHES
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.planner import plans
from fagen.spec.load import load_spec
from fagen.spec.model import Spec

BEGIN, END = "<!-- support:begin -->\n", "<!-- support:end -->"  # around the table in the README
RESULTS = Path(__file__).with_name("support_results.json")
HARDWARE, EMULATOR = "hardware", "emulator"
FAMILIES: tuple[str, ...] = get_args(Spec.model_fields["family"].annotation)
Verdict = Literal["runs", "emulated", "compiles", "refused"]
_RAN: tuple[tuple[Verdict, str], ...] = (("runs", HARDWARE), ("emulated", EMULATOR))  # the better one first
SMALL = Shape(2, 200, 200, 4, 4)
FP8 = {"dtype": "e4m3", "passes": ["forward"]}


@dataclass(frozen=True)
class Feature:
    """Something a user may ask for: keys of `problem:`, and a call that shows it."""

    name: str
    problem: Mapping[str, Any] = field(default_factory=dict)
    shape: Shape = SMALL


FEATURES: tuple[Feature, ...] = (
    Feature("fp16", {"dtype": "fp16"}),
    Feature("bf16"),
    Feature("fp8 (e4m3), forward", FP8),
    Feature("fp8 (e5m2), forward", {**FP8, "dtype": "e5m2"}),
    Feature("fp8, a scale for each block of rows", {**FP8, "fp8": {"scale": "block"}}),
    Feature("fp8, transposed v", {**FP8, "v_transposed": True}),
    Feature("fp8, packed sequences", {**FP8, "layout": "thd"}),
    Feature("head_dim 64", {"head_dim": 64}),
    Feature("head_dim 72", {"head_dim": 72}),
    Feature("head_dim 96", {"head_dim": 96}),
    Feature("head_dim 128"),
    Feature("head_dim 192", {"head_dim": 192}),
    Feature("head_dim 256", {"head_dim": 256}),
    Feature("head_dim 192, head_dim_v 128", {"head_dim": 192, "head_dim_v": 128}),
    Feature("causal", {"mask": "causal"}),
    Feature("causal, fewer queries than keys", {"mask": "causal"}, Shape(2, 77, 300, 4, 4)),
    Feature("causal, more queries than keys", {"mask": "causal"}, Shape(2, 300, 77, 4, 4)),
    Feature("sliding window", {"mask": {"window": [128, 0]}}),
    Feature("sliding window to both sides", {"mask": {"window": [64, 32]}}),
    Feature("grouped heads (GQA)", shape=Shape(2, 200, 200, 8, 2)),
    Feature("one key/value head (MQA)", shape=Shape(2, 200, 200, 6, 1)),
    Feature("one query", shape=Shape(2, 1, 1000, 4, 4)),
    Feature("no keys", shape=Shape(2, 100, 0, 4, 4)),
    Feature("BHSD layout", {"layout": "bhsd"}),
    Feature("packed sequences (THD, varlen)", {"layout": "thd"}),
    Feature("soft cap", {"softcap": 30.0}),
    Feature("dropout", {"dropout": True}),
    Feature("deterministic gradients", {"deterministic": True}),
)


@dataclass(frozen=True)
class Cell:
    """One feature of one family on one architecture."""

    family: str
    feature: Feature
    arch: str
    verdict: Verdict
    detail: str  # the device that it ran on, or why it is refused


def matrix() -> list[Cell]:
    """A cell for every family, feature and architecture, from the rules, the planner and recorded runs."""
    results = read_results()
    return [
        _cell(family, feature, arch, results.get(arch, {}))
        for family in FAMILIES
        for feature in FEATURES
        for arch in ARCHES
    ]


def plans_of(family: str, feature: Feature, arch: str) -> tuple[Plan, ...]:
    """The plans of both passes of a spec that asks for `feature` and leaves the schedule to the planner.

    Features that differ in the call only share it. Raises SpecError or PlanError where it is refused.
    """
    return _plans(family, json.dumps({"dtype": "bf16", "head_dim": 128, **feature.problem}), arch)


@cache
def _plans(family: str, problem: str, arch: str) -> tuple[Plan, ...]:
    name = f"support_{family}_{arch}_{sha256(problem.encode()).hexdigest()[:8]}"
    return plans(load_spec({"name": name, "family": family, "arch": arch, "problem": json.loads(problem)}))


def read_results(path: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """By arch and target (HARDWARE, EMULATOR): `device`, the product that ran the tests, and `right`, by
    family the features that passed.
    """
    return json.loads(path.read_text()) if path.exists() else {}


def record(
    arch: str, target: str, device: str, outcomes: Mapping[tuple[str, str], bool], path: Path = RESULTS
) -> None:
    """Write down which (family, feature) came out right, over what was known of the arch on that target."""
    path.touch()
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # test processes record side by side
        results = json.loads(file.read() or "{}")
        known = results.setdefault(arch, {}).get(target, {}).get("right", {})
        right: dict[str, set[str]] = {family: set(names) for family, names in known.items()}
        for (family, feature), passed in outcomes.items():
            names = right.setdefault(family, set())
            names.add(feature) if passed else names.discard(feature)
        listed = {family: sorted(names) for family, names in right.items()}
        results[arch][target] = {"device": device, "right": listed}
        text = json.dumps(results, indent=2, sort_keys=True) + "\n"
        file.seek(0)
        file.truncate()
        file.write(text)


def markdown(cells: list[Cell]) -> str:
    """A table per family, for the architectures that have it, and under it the reasons of what is refused."""
    tables = ("\n".join(_family([c for c in cells if c.family == family])) for family in FAMILIES)
    return "\n\n".join(tables)


def embedded(page: str, table: str) -> str:
    """`page` with `table` between the markers. Raises EmitError for a page that has not one of each."""
    before, *rest = page.split(BEGIN)
    _, *after = "".join(rest).split(END)
    if len(rest) != 1 or len(after) != 1:
        raise EmitError(f"no place for the table: allowed is one {BEGIN.strip()} with {END.strip()} below it")
    return f"{before}{BEGIN}{table}\n{END}{after[0]}"


def _cell(family: str, feature: Feature, arch: str, results: Mapping[str, Any]) -> Cell:
    try:
        plans_of(family, feature, arch)
    except SpecError as error:
        return Cell(
            family, feature, arch, "refused", "; ".join(f"`{i.key}` {i.message}" for i in error.issues)
        )
    except PlanError as error:
        return Cell(family, feature, arch, "refused", str(error).splitlines()[0])
    for verdict, target in _RAN:
        ran = results.get(target, {})
        if feature.name in ran.get("right", {}).get(family, ()):
            return Cell(family, feature, arch, verdict, ran["device"])
    return Cell(family, feature, arch, "compiles", "")


def _family(cells: list[Cell]) -> Iterator[str]:
    family = cells[0].family
    arches = [arch.name for arch in ARCHES.values() if family in arch.families]
    reasons: dict[str, int] = {}
    yield f"| {family}, both passes | {' | '.join(arches)} |"
    yield "|---" * (1 + len(arches)) + "|"
    for feature in FEATURES:
        row = [cell for cell in cells if cell.feature is feature and cell.arch in arches]
        yield f"| {feature.name} | {' | '.join(_text(cell, reasons) for cell in row)} |"
    yield ""
    for reason, number in reasons.items():
        yield f"{number}. {reason}"
    if others := [arch for arch in ARCHES if arch not in arches]:
        yield ""
        yield f"Refused on {', '.join(others)}: family {family} is for {', '.join(arches)}."
    devices = {cell.arch: cell.detail for cell in cells if cell.verdict == "runs"}
    if devices:
        yield ""
        yield "Ran on: " + ", ".join(f"{arch} {device}" for arch, device in devices.items()) + "."


def _text(cell: Cell, reasons: dict[str, int]) -> str:
    if cell.verdict != "refused":
        return cell.verdict
    return f"refused ({reasons.setdefault(cell.detail, len(reasons) + 1)})"
