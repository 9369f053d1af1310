"""What `fagen tune` found for a call: on this machine, or elsewhere on such a GPU, and ships."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from fagen.dispatch.problem import Request
from fagen.dispatch.shipped import Winner, winners
from fagen.dispatch.target import Target
from fagen.spec.model import Spec
from fagen.tune.entry import bucket, distance, problem_key
from fagen.tune.store import Entry, Where, default_store
from fagen.tune.where import this_machine

Source = Literal["tuned", "shipped", "planned"]  # the store, specs/, made for the call


@dataclass(frozen=True)
class Tuned:
    """A spec that was measured to be the fastest of many for calls like one."""

    spec: Spec
    source: Source
    why: str  # what was measured
    refusal: str = ""  # why it does not hold for this call; "": it does


def tuned_specs(request: Request, target: Target) -> Iterator[Tuned]:
    """The store's for `request`, then those shipped for the shapes of its bucket, the nearest first."""
    entry = _entry(request, target)
    if entry is not None:
        yield Tuned(entry.spec, "tuned", _beat(entry))
    for winner in _winners(request):
        device, here = winner.spec.device, target.device.name
        why = f"tuned for {winner.named.name} (B,Sq,Sk,Hq,Hkv = {winner.named.shape}) on {device}"
        yield Tuned(winner.spec, "shipped", why, "" if device == here else f"{why}; this is {here}")


def _entry(request: Request, target: Target) -> Entry | None:
    """The store's entry, of the backward if the call trains and there is one; None in the emulator.

    A backward's spec has the forward that was tuned before it.
    """
    if target.index is None:
        return None
    # Driver and toolchain are those of every GPU here.
    where = replace(_this_machine(), gpu=target.product)
    found = (
        default_store().find(request.problem, request.shape, direction, where)
        for direction in reversed(request.passes)
    )
    return next((entry for entry in found if entry), None)


def _winners(request: Request) -> list[Winner]:
    """A shipped winner has both passes; what decides is the last one that the call asks for."""
    direction = request.passes[-1]
    wanted = problem_key(request.problem, direction), bucket(request.shape)
    found = [
        winner
        for winner in winners()
        if direction in winner.spec.problem.passes
        and (problem_key(winner.spec.problem, direction), bucket(winner.named.shape)) == wanted
    ]
    return sorted(found, key=lambda winner: distance(winner.named.shape, request.shape))


def _beat(entry: Entry) -> str:
    took, beaten = (f"{seconds * 1e6:,.1f} us" for seconds in (entry.seconds, entry.beat_seconds))
    return (
        f"tuned on this GPU: its {entry.direction} took {took} at {entry.shape}, "
        f"where {entry.beat} took {beaten}"
    )


@functools.cache
def _this_machine() -> Where:
    return this_machine()
