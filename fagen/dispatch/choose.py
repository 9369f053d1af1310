"""Which spec a call gets: what was tuned for it, else what the model thinks is fastest."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import torch

from fagen.dispatch.candidates import Candidate, candidates
from fagen.dispatch.problem import Request
from fagen.dispatch.target import Target, target_of
from fagen.dispatch.tuned import tuned_specs
from fagen.plan.launch import Shape
from fagen.plan.planner import NEAR
from fagen.spec.model import Problem
from fagen.tune.store import bucket

_LOCK = Lock()
_choices: dict[tuple[Problem, Shape, bool, torch.device], Choice] = {}


@dataclass(frozen=True)
class Choice:
    """The spec for all calls of a problem whose shapes are in one bucket, and what else there was."""

    request: Request  # of the first such call
    bucket: Shape  # what times are predicted for
    target: Target
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None  # None: no candidate is eligible
    why: str


def choice_of(request: Request) -> Choice:
    """The choice for `request`; made once in a process for each problem, bucket and device."""
    shape = bucket(request.shape)
    key = request.problem, shape, request.trains, request.device
    with _LOCK:
        if key not in _choices:
            _choices[key] = _choose(request, shape, target_of(request.device))
        return _choices[key]


def _choose(request: Request, shape: Shape, target: Target) -> Choice:
    found = candidates(request, shape, target, tuple(tuned_specs(request, target)))
    eligible = [one for one in found if not one.refusal]
    if not eligible:
        chosen, why = None, "no candidate is eligible"
    elif eligible[0].measured:
        chosen, why = eligible[0], eligible[0].measured
    else:
        # The model is no better than NEAR: what was picked by hand goes before what was planned.
        fastest = min(one.seconds for one in eligible)
        near = [one for one in eligible if one.seconds <= (1 + NEAR) * fastest]
        chosen = min(near, key=lambda one: (one.source == "planned", one.seconds))
        why = "predicted fastest" if len(eligible) > 1 else "the only one eligible"
    return Choice(request, shape, target, found, chosen, why)
