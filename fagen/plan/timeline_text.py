"""A timeline as lines of text: a letter for what each role and engine does most of a column's time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.predict import predict
from fagen.plan.timeline import Timeline
from fagen.plan.timeline_roles import ENGINES, HBM, L2, LOAD, STALL, Event
from fagen.plan.v3_time import typical_timeline

COLUMNS = 88
LABEL = 12
BEFORE, AFTER = 3, 2  # tiles shown, before and after the end of a work item

LETTERS = {"Q": "Q", "K": "K", "V": "V", "S": "S", "softmax": "x", "PV": "P", "O": "o", STALL: "."}
LEGEND = (
    "load   Q K V  a tile comes from L2      .  waits for an empty buffer",
    "math   S  waits for S = Q K'    x  softmax    P  waits for O += P V    o  rescales or stores O",
    "       .  waits for a tile or for its turn",
)


def report(plan: Plan, shape: Shape) -> str:
    """The timeline of a v3 plan on a shape, and what is predicted from it. Raises PlanError."""
    shown, predicted = typical_timeline(plan, shape), predict(plan, shape)
    used = ", ".join(f"{engine} {shown.utilisation(engine):.0%}" for engine in ENGINES)
    return "\n".join(
        (
            f"{plan.spec.name} on one SM of {plan.device.name}, B,Sq,Sk,Hq,Hkv = {shape}: the end of a work "
            f"item of {shown.tiles} K/V tiles, and the next item",
            "",
            *lines(shown),
            "",
            *LEGEND,
            "",
            f"work item  {shown.item_cycles:,.0f} cycles; {used}",
            f"time       {predicted.seconds * 1e6:,.1f} us predicted; bound by {predicted.bound}",
            f"speed      {predicted.tflops:,.1f} TFLOP/s predicted",
        )
    )


def lines(shown: Timeline) -> list[str]:
    """A line for each role and engine, around the end of a work item, and the axis."""
    start = shown.ends[-2] - min(BEFORE / shown.tiles, 2.0) * shown.item_cycles
    end = shown.ends[-2] + min(AFTER / shown.tiles, 1.0) * shown.item_cycles

    def line(label: str, events: Iterable[Event]) -> str:
        return f"{label:{LABEL}}{_letters(events, start, end)}".rstrip()

    roles = [
        line(role, (e for e in shown.events if e.role == role and (role == LOAD or e.engine is None)))
        for role in shown.roles
    ]
    engines = [
        line(engine, (e for e in shown.events if e.engine == engine))
        for engine in ENGINES
        if engine not in (L2, HBM)
    ]
    us = (end - start) / shown.kernel.clock_hz * 1e6
    axis = f"|<- {end - start:,.0f} cycles = {us:.2f} us at {shown.kernel.clock_hz / 1e9:.2f} GHz"
    return [*roles, *engines, f"{'':{LABEL}}{axis} {'-' * (COLUMNS - len(axis) - 4)}>|"]


def _letters(events: Iterable[Event], start: float, end: float) -> str:
    width = (end - start) / COLUMNS
    covered = [defaultdict(float, {" ": width}) for _ in range(COLUMNS)]
    for event in events:
        first = max(0, int((event.start - start) / width))
        for column in range(first, COLUMNS):
            left = start + column * width
            share = min(event.end, left + width) - max(event.start, left)
            if share <= 0:
                break
            covered[column][LETTERS[event.what]] += share
            covered[column][" "] -= share
    return "".join(max(column, key=column.__getitem__) for column in covered)
