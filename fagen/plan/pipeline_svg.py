"""The roles of a CTA, the buffers between them and the barriers that say when: who waits for what."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from fagen.plan.ir import Plan
from fagen.plan.pipeline import EXCHANGE, LOAD, STORE, Passage, Pipeline, Role, Signal
from fagen.plan.planner import pipeline
from fagen.plan.svg import (
    BARRIERS,
    SMALL,
    WIDTH,
    arrow,
    drawing,
    hue_of,
    lines_of,
    rect,
    text,
)

NODE, TALL = 200, 96  # width of a role on the left; height of a passage
BOX, BOX_WIDTH = 290, 420  # left edge of the buffers, and their width
SAYS = BOX + 108  # left edge of what a barrier says
MATH = 800  # left edge of the math role
TOP, GAP = 10, 16
TURN = 32  # above a math role
CELL = 14

GLOBAL = Role("global memory", 0, 0, "results leave in bulk")


def render(plan: Plan) -> str:
    """Data goes along solid arrows; along dashed ones those who are done say so to those who wait."""
    pipe = pipeline(plan)
    stages = {b.name: b.stages for b in (*plan.buffers, *plan.barriers)}
    meanings = {barrier.name: barrier.meaning for barrier in plan.barriers}
    bottom = TOP + (TALL + GAP) * len(pipe.passages) - GAP
    bottom = max(bottom, TOP + 10 + 132 * (len(pipe.math) - 1))
    parts = [*_sources(pipe), *_math(pipe, bottom)]
    for i, passage in enumerate(pipe.passages):
        parts += _passage(passage, stages, meanings, TOP + (TALL + GAP) * i)
    return drawing(f"Roles and barriers of {plan.spec.name}, {plan.direction}", bottom + 10, parts)


def _sources(pipe: Pipeline) -> list[str]:
    """On the left who loads, and where results go, beside the passages that are theirs."""
    parts, row = [], 0
    for way, passages in groupby(pipe.passages, lambda passage: passage.way):
        rows = len(list(passages))
        if way != EXCHANGE:
            top = TOP + (TALL + GAP) * row
            parts += _role(pipe.load if way == LOAD else GLOBAL, 1, top, NODE, (TALL + GAP) * rows - GAP)
        row += rows
    return parts


def _math(pipe: Pipeline, bottom: float) -> list[str]:
    """On the right the warps that multiply, and their turns."""
    width, count = WIDTH - MATH - 1, len(pipe.math)
    if count == 1:
        return _role(pipe.math[0], MATH, TOP, width, bottom - TOP)
    step = (bottom - TOP - 10) / count
    tops = [TOP + TURN + step * i for i in range(count)]
    inside = width - 44
    parts = [rect(MATH, TOP, width, bottom - TOP, "box")]
    for role, top in zip(pipe.math, tops, strict=True):
        parts += _role(role, MATH + 10, top, inside, step - TURN)
    for signal, top in zip(pipe.turns, tops, strict=bool(pipe.turns)):
        parts.append(text(MATH + 40, top - 10, _says(signal), "quiet"))
    return parts + (_turns(tops, step - TURN, MATH + 10 + inside) if pipe.turns else [])


def _turns(tops: Sequence[float], tall: float, right: float) -> list[str]:
    """From each role to the next, and from the last to the first."""
    x, side, first = MATH + 28, right + 18, tops[0] - TURN + 7
    parts = [part for top in tops[1:] for part in arrow([(x, top - TURN), (x, top)])]
    last = tops[-1] + tall / 2
    return parts + arrow([(right, last), (side, last), (side, first), (x, first), (x, tops[0])])


def _role(role: Role, x: float, y: float, width: float, height: float) -> list[str]:
    threads = [f"{role.warps} warps", f"{role.registers} registers a thread"] if role.warps else []
    says = [*threads, *role.does.split("; ")]
    words = [words for part in says for words in lines_of(part, width - 24, SMALL)]
    shown = words[: max(1, int((height - 30) / 16))]
    return [
        rect(x, y, width, height, "box", tip="; ".join((role.name, *says))),
        text(x + 12, y + 20, role.name, "strong"),
        *(text(x + 12, y + 38 + 16 * i, line, "quiet") for i, line in enumerate(shown)),
    ]


def _passage(passage: Passage, stages: dict[str, int], meanings: dict[str, str], top: float) -> list[str]:
    """The box of some buffers: their stages, and below what says full and what says empty."""
    parts = [rect(BOX, top, BOX_WIDTH, TALL, "box")]
    x = BOX + 12.0
    for name in passage.buffers:
        parts.append(text(x, top + 20, name, "strong"))
        x += 9 * len(name) + 6
        for stage in range(stages[name]):
            parts.append(rect(x, top + 9, CELL, CELL, "stage", hue_of(name), f"{name}, stage {stage}"))
            x += CELL + 3
        x += 14
    if passage.then:
        parts.append(text(BOX + BOX_WIDTH - 12, top + 20, f"then {passage.then}", "quiet", "end"))
    for y, what, signal in ((top + 46, "full", passage.full), (top + 68, "empty", passage.empty)):
        parts.append(text(BOX + 12, y, what))
        parts.append(text(SAYS, y, _says(signal) if signal else "never: filled once", "quiet"))
        for stage in range(stages.get(signal.name, 0) if signal else 0):
            parts.append(rect(BOX + 60 + 12 * stage, y - 9, 9, 9, "signal", BARRIERS))
    parts += [text(SAYS, top + 88, f"{name}: {meanings[name]}", "quiet") for name in passage.beside]
    return parts + _arrows(passage, top)


def _says(signal: Signal) -> str:
    """Its name, and what completes it."""
    count = f"{signal.arrivals:,} arrival{'s' if signal.arrivals != 1 else ''}"
    return f"{signal.name}: {count}" + (f" and {signal.bytes:,} bytes" if signal.bytes else "")


def _arrows(passage: Passage, top: float) -> list[str]:
    """Above, tiles on their way; below, dashed, who has done with a stage, or where they come back to."""
    left, right = (NODE + 1, BOX), (BOX + BOX_WIDTH, MATH)
    back_left, back_right = left[::-1], right[::-1]
    upper, lower = {
        LOAD: ([(left, passage.by), (right, "full")], [(back_left, "empty"), (back_right, "done")]),
        STORE: ([(back_right, "st.shared"), (back_left, passage.by)], [(left, "read"), (right, "empty")]),
        EXCHANGE: ([(back_right, passage.by)], [(right, "full")]),
    }[passage.way]
    css = "" if passage.way == EXCHANGE else " dashed"
    return [
        *(part for ends, words in upper for part in _labelled(ends, top + 38, words)),
        *(part for ends, words in lower if passage.empty for part in _labelled(ends, top + 72, words, css)),
    ]


def _labelled(ends: tuple[float, float], y: float, words: str, css: str = "") -> list[str]:
    start, end = ends
    return [
        *arrow([(start, y), (end, y)], f"arrow{css}"),
        text((start + end) / 2, y - 6, words, "quiet", "middle"),
    ]
