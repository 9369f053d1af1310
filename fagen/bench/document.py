"""All that a bench found as one JSON document, which `fagen bench --json` writes and pages are made of."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import quantiles
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from fagen.bench.case import FLOPS, Case, Refusal
from fagen.bench.clock import ROUNDS
from fagen.bench.compare import Outcome, Result
from fagen.bench.summary import summaries
from fagen.errors import ArgumentError, shown
from fagen.spec.model import Problem

FORMAT = "fagen bench 1"
SIZES = ("batch", "seqlen_q", "seqlen_k", "heads_q", "heads_kv")

LEFT_OUT: dict[str, Any] = Problem.model_construct().model_dump(mode="json")  # what a problem has then

Document = Mapping[str, Any]


class _Timed(BaseModel):
    """A contender's part of a document, as far as another run is compared with it."""

    median_us: float = Field(gt=0, allow_inf_nan=False)
    quartiles_us: tuple[float, float, float]


class _NotTimed(BaseModel):
    """The same of one that was not timed."""

    median_us: None


class _OldCase(BaseModel):
    """A case's part of a document, likewise."""

    spec: str
    mode: str
    shape_name: str
    problem: dict[str, Any]
    shape: dict[str, int]
    contenders: dict[str, _Timed | _NotTimed]


class _OldDocument(BaseModel):
    """A document, likewise."""

    machine: dict[str, str]
    cases: list[_OldCase]


def to_json(
    results: Sequence[Result],
    refused: Sequence[Refusal],
    machine: Mapping[str, str],
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """The document: times in microseconds, TFLOP/s as `flops` says, memory in bytes.

    A case: its problem and shape, what the models predict, the device's ceilings, and by contender its
    median and quartiles, error (see bench.check), peak memory beside the inputs, or its problem in words.
    """
    return {
        "format": FORMAT,
        "machine": dict(machine),
        "peers": dict(versions),
        "flops": FLOPS,
        "rounds": ROUNDS,
        "cases": [_case(result) for result in results],
        "refused": [asdict(refusal) for refusal in refused],
        "summary": [asdict(summary) for summary in summaries(results)],
    }


def read(path: Path) -> Document:
    """A document that `to_json` has made. Raises ArgumentError for anything else, also of another format."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # no JSON, no UTF-8, or lists in lists in lists
        raise ArgumentError(
            f"{path}: cannot be read: {error}; allowed: a file of `fagen bench --json`"
        ) from error
    version = found.get("format") if isinstance(found, dict) else None
    if version != FORMAT:
        raise ArgumentError(
            f"{path}: format is {shown(str(version))}; allowed: {shown(FORMAT)}, of `fagen bench --json`"
        )
    try:
        _OldDocument.model_validate(found)
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"]))
        raise ArgumentError(
            f"{path}: is damaged: {where}: {wrong['msg']}; allowed: a file of `fagen bench --json` as it was "
            "written"
        ) from error
    return found


def check_in_common(old: Document, todo: Iterable[Case]) -> None:
    """Raises ArgumentError where nothing of what is to be measured is in `old`."""
    known = {identity(case) for case in old["cases"]}
    if not any(identity(what_is_measured(case)) in known for case in todo):
        names = ", ".join(dict.fromkeys(f"{case['spec']} {case['mode']}" for case in old["cases"])) or "none"
        raise ArgumentError(
            "--compare: no case of this run is in the file; allowed: a run with some of its specs, shapes "
            f"and modes, of which it has {names}"
        )


def identity(case: Mapping[str, Any]) -> str:
    """What two documents' cases of the same work have in common.

    Keys that a document's problem does not have, because they came later, are as a spec has them that leaves
    them out.
    """
    problem = {key: value for key, value in (LEFT_OUT | case["problem"]).items() if key != "passes"}
    return json.dumps([case["spec"], case["mode"], problem, case["shape"]], sort_keys=True)


def what_is_measured(case: Case) -> dict[str, Any]:
    """A case's part of the document that is known before anything is measured."""
    return {
        "spec": case.spec_name,
        "mode": case.mode,
        "shape_name": case.shape_name,
        "problem": case.spec.problem.model_dump(mode="json"),
        "shape": {size: getattr(case.shape, size) for size in SIZES},
    }


def _case(result: Result) -> dict[str, Any]:
    case = result.case
    return {
        **what_is_measured(case),
        "flops": case.flops,
        "hbm_bytes": case.hbm_bytes,
        "predicted_us": _microseconds(case.predicted_seconds),
        "predicted_tflops": case.predicted_tflops,
        "bound": case.bound,
        "ceilings": {
            "tensor_tflops": case.tensor_flops_per_s / 1e12,
            "hbm_bytes_per_s": case.plans[0].device.hbm_bytes_per_s,
        },
        "allowed_error": result.allowed,
        "contenders": {
            name: _outcome(outcome) | {"tflops": result.tflops(name)}
            for name, outcome in result.outcomes.items()
        },
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    error = outcome.error
    return {
        "median_us": _microseconds(outcome.median),
        "quartiles_us": [_microseconds(q) for q in quantiles(outcome.seconds)] if outcome.seconds else None,
        "error": error if error is not None and math.isfinite(error) else None,  # JSON has no NaN
        "peak_bytes": outcome.peak_bytes,
        "problem": outcome.problem,
    }


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e6, 3)
