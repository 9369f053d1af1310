"""What the cost model says about many plans: here, or in as many processes as that is worth starting."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fagen.errors import PlanError, TuneError
from fagen.plan.efficiency import Efficiencies
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.predict import predict
from fagen.tune.process import Fault, Process
from fagen.tune.space import reason
from fagen.tune.spread import spread

MANY = 500  # plans that are worth a process: about a second of a CPU, as long as it takes to start
TOGETHER = 40  # plans in one piece of work
PATIENCE = 300.0  # seconds for one

Forecast = float | str  # seconds, or why the plan cannot run on the shape


class _Piece(NamedTuple):
    number: int  # of what it is a piece of
    plans: Sequence[Plan]
    shape: Shape
    efficiencies: Efficiencies


def forecasts(
    asked: Sequence[tuple[Sequence[Plan], Shape]],
    efficiencies: Efficiencies,
    step: Callable[[int], object],
    many: int = MANY,
) -> list[list[Forecast]]:
    """Forecasts of each of `asked`, in the order of its plans; `step` is told how many more are done.

    There is a CPU to every `many` plans, if there are so many CPUs. `efficiencies` are a calibrated device's,
    as `predict` takes them. Raises TuneError where a process ends.
    """
    pieces = [
        _Piece(number, plans[first : first + TOGETHER], shape, efficiencies)
        for number, (plans, shape) in enumerate(asked)
        for first in range(0, len(plans), TOGETHER)
    ]
    count = min(len(os.sched_getaffinity(0)), sum(len(piece.plans) for piece in pieces) // many)
    found: dict[int, list[Forecast]] = {}
    processes = [Process(patience=PATIENCE) for _ in range(count if count > 1 else 0)]
    try:
        done = spread(range(len(pieces)), processes, lambda process, i: _elsewhere(process, pieces[i]))
        for i, forecast in done if processes else ((i, _forecast(piece)) for i, piece in enumerate(pieces)):
            found[i] = forecast
            step(len(forecast))
    finally:
        for process in processes:
            process.close()
    whole: list[list[Forecast]] = [[] for _ in asked]
    for i, piece in enumerate(pieces):
        whole[piece.number] += found[i]
    return whole


def _elsewhere(process: Process, piece: _Piece) -> list[Forecast]:
    try:
        return process.call(_forecast, piece)
    except Fault as fault:
        raise TuneError(f"predicting: what was to do it {fault}") from fault


def _forecast(piece: _Piece) -> list[Forecast]:
    return [_one(plan, piece.shape, piece.efficiencies) for plan in piece.plans]


def _one(plan: Plan, shape: Shape, efficiencies: Efficiencies) -> Forecast:
    try:
        return predict(plan, shape, efficiencies).seconds
    except PlanError as error:  # e.g. a group of query heads that pack_gqa does not take
        return reason(error)
