"""What a bench found: a table, the notes under it, and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import geometric_mean, quantiles
from typing import Any

from rich.table import Table

from fagen.bench.clock import ROUNDS
from fagen.bench.compare import OURS, Outcome, Result
from fagen.plan.predict import predict

NOTHING = "-"


@dataclass(frozen=True)
class Summary:
    """How the op stands against one peer, over the cases in which both were timed."""

    peer: str
    cases: int
    mean: float  # geometric, of the ratios
    worst: float
    worst_case: str

    def __str__(self) -> str:
        return (
            f"{self.mean:.3f} x {self.peer} (geometric mean of {self.cases}), "
            f"at worst {self.worst:.3f} x ({self.worst_case})"
        )


def summaries(results: Sequence[Result]) -> list[Summary]:
    """One summary per peer that was timed beside the op."""
    found = []
    for peer in _peers(results):
        ratios = [(ratio, str(result.case)) for result in results if (ratio := result.ratio(peer))]
        if ratios:
            mean = geometric_mean(ratio for ratio, _ in ratios)
            found.append(Summary(peer, len(ratios), mean, *min(ratios)))
    return found


def failures(results: Sequence[Result]) -> list[str]:
    """Who was not timed where, and why."""
    return [
        f"{result.case}: {name} {outcome.problem}"
        for result in results
        for name, outcome in result.outcomes.items()
        if outcome.problem
    ]


def table(results: Sequence[Result]) -> Table:
    """The op's time; TFLOP/s of it, of its plan and of each peer; its speed as a multiple of the peer's."""
    peers = _peers(results)
    made = Table("spec", "pass", "mask", box=None, pad_edge=False)
    beside = [heading for peer in peers for heading in (peer, "x")]
    for heading in ("d", "S", "ms", OURS, "plan", *beside, "error", "allowed"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.caption = f"ms of {OURS}; TFLOP/s of visible pairs; medians of {ROUNDS}; x: {OURS} against that peer"
    made.caption_justify = "left"
    for result in results:
        made.add_row(*_row(result, peers))
    return made


def to_json(results: Sequence[Result], machine: Mapping[str, str]) -> dict[str, Any]:
    """Everything that was measured, with the machine that it was measured on."""
    return {
        "machine": dict(machine),
        "cases": [_case(result) for result in results],
        "summary": [asdict(summary) for summary in summaries(results)],
    }


def _peers(results: Sequence[Result]) -> list[str]:
    return [name for name in (results[0].outcomes if results else ()) if name != OURS]


def _row(result: Result, peers: Sequence[str]) -> Iterator[str]:
    case, ours = result.case, result.outcomes[OURS]
    problem = case.spec.problem
    yield from (case.spec_name, case.plan.direction, case.mask)
    yield from (str(problem.head_dim), str(case.shape.seqlen_q))
    yield _number(ours.median and ours.median * 1e3, ".3f")
    yield _number(result.tflops(OURS), ".1f")
    yield _number(predict(case.plan, case.shape).tflops, ".1f")
    for peer in peers:
        yield _number(result.tflops(peer), ".1f")
        yield _number(result.ratio(peer), ".3f")
    yield _number(ours.error, ".1e")
    yield _number(result.allowed, ".1e")


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def _case(result: Result) -> dict[str, Any]:
    case = result.case
    predicted = predict(case.plan, case.shape)
    return {
        "spec": case.spec_name,
        "pass": case.plan.direction,
        "problem": case.spec.problem.model_dump(mode="json"),
        "shape": asdict(case.shape),
        "flops": predicted.flops,
        "predicted_tflops": predicted.tflops,
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
        "problem": outcome.problem,
    }


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e6, 3)
