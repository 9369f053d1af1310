"""The cost model's efficiencies (`plan/efficiency.py`) of one GPU, fitted to what tuning measured on it.

Each pass is fitted by itself: its few numbers, by least squares on the logarithm of predicted over measured
seconds. The loss forgives outliers, bounds keep every number within a factor of what is shipped, and a weak
pull towards what is shipped leaves alone what the records say nothing about.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from math import exp, log, sqrt

from fagen.errors import PlanError, TuneError
from fagen.plan.efficiency import SHIPPED, Efficiency, pass_name
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import predict
from fagen.tune.journal import Record

LEAST = 20  # records of a pass: fewer say too little about so many numbers
MOST = 100  # of a pass, spread evenly: more only take longer
FACTOR = 3.0  # how far a number may move from what is shipped
PULL = 0.1  # of a number that is off by a factor e, as an error of a prediction
OUTLIER = 0.1  # errors from here on count less than by their squares
STEP = 0.02  # of a number, to see what it changes: the timeline is not smooth
EVALUATIONS = 8
EVERY = 4  # record that is left out, to see how the others predict it


@dataclass(frozen=True)
class Errors:
    """Of log(predicted / measured seconds)."""

    rms: float
    worst: float


@dataclass(frozen=True)
class Fit:
    """A pass's efficiency, and how well it predicts."""

    efficiency: Efficiency
    records: int
    before: Errors  # as shipped
    after: Errors
    left_out: Errors  # of a quarter of the records, predicted by a fit to the others


@dataclass(frozen=True)
class Calibration:
    """The fits of a GPU, by the name of the pass."""

    gpu: str  # product name
    fits: Mapping[str, Fit]

    def __str__(self) -> str:
        def line(name: str, fit: Fit) -> str:
            before, after, left_out = fit.before, fit.after, fit.left_out
            return (
                f"{name}: {fit.records} measurements; off by {after.rms:.1%} rms, at worst {after.worst:.1%} "
                f"(as shipped {before.rms:.1%}, {before.worst:.1%}; left out of the fit {left_out.rms:.1%})"
            )

        return "\n".join((self.gpu, *(line(name, fit) for name, fit in self.fits.items())))


@dataclass(frozen=True)
class _Measured:
    plan: Plan
    shape: Shape
    seconds: float


def calibrate(
    records: Iterable[Record], gpu: str, progress: Callable[[str], None] = lambda _: None
) -> Calibration:
    """Fit every pass of which there are enough records of `gpu`, a product name; tells `progress` which.

    Raises TuneError if no pass has LEAST records, or if scipy is not installed.
    """
    passes = _by_pass(records, gpu)
    enough = {name: _spread(runs) for name, runs in passes.items() if len(runs) >= LEAST}
    if not enough:
        counts = ", ".join(f"{name} {len(runs)}" for name, runs in passes.items()) or "none"
        raise TuneError(
            f"measurements of {gpu} in the journal: {counts}; at least {LEAST} of a pass are needed to "
            "calibrate it: run `fagen tune SPEC` first"
        )
    fits = {}
    for name, runs in enough.items():
        progress(f"{name}: fitting {len(runs)} measurements")
        fits[name] = _fit_pass(name, runs)
    return Calibration(gpu, fits)


def _by_pass(records: Iterable[Record], gpu: str) -> dict[str, list[_Measured]]:
    """What was measured of each pass: of the same kernels on the same shape the one with the most rounds.

    What is planned no more is left out.
    """
    best: dict[tuple[str, Shape, str], Record] = {}
    for record in records:
        key = record.kernels, record.shape, record.direction
        if record.where.gpu == gpu and record.rounds >= (best[key].rounds if key in best else 0):
            best[key] = record
    passes = defaultdict(list)
    for record in best.values():
        with suppress(PlanError):  # of an earlier fagen, whose planner took it
            planned = plan(record.spec, None, record.direction)
            predict(planned, record.shape)
            passes[pass_name(planned)].append(_Measured(planned, record.shape, record.seconds))
    return passes


def _spread(runs: Sequence[_Measured]) -> list[_Measured]:
    return [runs[i * len(runs) // MOST] for i in range(MOST)] if len(runs) > MOST else list(runs)


def _fit_pass(name: str, runs: Sequence[_Measured]) -> Fit:
    others = [run for i, run in enumerate(runs) if i % EVERY]
    fitted = _fit(name, runs)
    return Fit(
        efficiency=fitted,
        records=len(runs),
        before=_errors(name, SHIPPED[name], runs),
        after=_errors(name, fitted, runs),
        left_out=_errors(name, _fit(name, others), runs[::EVERY]),
    )


def _fit(name: str, runs: Sequence[_Measured]) -> Efficiency:
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        raise TuneError("calibrating needs scipy: pip install 'fagen[calibrate]'") from error

    shipped = SHIPPED[name]
    keys = [field.name for field in fields(shipped)]

    def at(logs: Sequence[float]) -> Efficiency:
        moved = {key: getattr(shipped, key) * exp(x) for key, x in zip(keys, logs, strict=True)}
        return replace(shipped, **moved)

    def residuals(shifted: Sequence[float]) -> list[float]:
        logs = [x - 1 for x in shifted]
        return [*_logs(name, at(logs), runs), *(PULL * x for x in logs)]

    far = log(FACTOR)
    # From 1 and not from 0, as scipy takes steps relative to where it is.
    solution = least_squares(
        residuals,
        [1.0] * len(keys),
        bounds=(1 - far, 1 + far),
        loss="soft_l1",
        f_scale=OUTLIER,
        diff_step=STEP,
        max_nfev=EVALUATIONS,
    )
    return at([x - 1 for x in solution.x])


def _logs(name: str, efficiency: Efficiency, runs: Sequence[_Measured]) -> list[float]:
    return [log(predict(run.plan, run.shape, {name: efficiency}).seconds / run.seconds) for run in runs]


def _errors(name: str, efficiency: Efficiency, runs: Sequence[_Measured]) -> Errors:
    off = _logs(name, efficiency, runs)
    return Errors(sqrt(sum(x * x for x in off) / len(off)), max(map(abs, off)))
