"""What `fagen tune` found on this machine for a call."""

from __future__ import annotations

import functools
from dataclasses import replace

from fagen.dispatch.problem import Request
from fagen.dispatch.target import Target
from fagen.tune.store import Entry, Where, default_store
from fagen.tune.where import this_machine


def tuned_entry(request: Request, target: Target) -> Entry | None:
    """The store's entry for `request`, of the backward if it trains and there is one; None in the emulator.

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


@functools.cache
def _this_machine() -> Where:
    return this_machine()
