"""How a synchronisation is taken away or weakened: one table of patterns, for any kernel and header.

What synchronises is known by its name: __syncthreads and __syncwarp, and any function that has one of VERBS
among the words of its name (`ptx::mbarrier_arrive`, `ring.wait_full`, `read.advance`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from . import cpp
from .cpp import Call

VERBS = frozenset(
    ("wait", "arrive", "fence", "commit", "sync", "init", "inval", "expect", "advance", "acquire", "release")
)
CUDA = ("__syncthreads", "__syncwarp")

_ASKS = re.compile(r"(?:!|&&|\|\||\bif \(|\bwhile \(|\breturn|=)\s*$")  # before a call whose answer is used


class Edit(NamedTuple):
    """A change of text[start:end]."""

    what: str  # "wait_full: delete"
    at: int  # where the code is that it is about
    start: int
    end: int
    by: str


def edits(text: str) -> Iterator[Edit]:
    """Every mutation of `text`."""
    bare = cpp.without_comments(text)
    for call in cpp.calls(bare):
        words = set(call.name.split("_"))
        if call.name in CUDA or (not call.name.startswith("__") and words & VERBS):
            yield from _of_call(bare, call, words)
            yield from _moves(bare, call, words)
    for what, pattern, by in _OTHERS:
        for found in pattern.finditer(bare):
            yield Edit(what, found.start(), *found.span(), found.expand(by))


# Phases, stages and distances that no call expresses. Position{stage, parity}: where a side of a ring starts.
_OTHERS = tuple(
    (what, re.compile(pattern), by)
    for what, pattern, by in (
        ("never flip the phase", r"\b(\w*(?:parity|phase)\w*) \^= 1", r"\1 ^= 0"),
        ("never wrap around", r"(?<!int )\bstage = 0\b", "stage = stage"),
        ("never leave the stage", r"(?<!; )\+\+stage\b", "stage"),
        ("start in the other phase", r"(Position<\w+> \w+\(\) \{ return \{\w+, )([01])\}", r"\1 1 - \2}"),
        ("one tile more ahead", r"(\bk(?:Ahead|Slack|Lag)\w* = )([^;]+);", r"\1 (\2) + 1;"),
        ("one tile less ahead", r"(\bk(?:Ahead|Slack|Lag)\w* = )([^;]+);", r"\1 (\2) - 1;"),
        ("all threads, not one", r"\bif \((?:threadIdx\.x|lane_id\(\)|warp_id\(\)) == 0\)", "if (true)"),
    )
)


def _of_call(text: str, call: Call, words: set[str]) -> Iterator[Edit]:
    def edit(what: str, by: str) -> Edit:
        return Edit(f"{call.name}: {what}", call.start, call.start, call.end, by)

    def with_arguments(*arguments: str) -> str:
        return f"{call.code[: call.code.index('(')]}({', '.join(arguments)})"

    asked = _ASKS.search(text, max(0, call.start - 20), call.start)
    yield edit("delete", "true" if asked else "void()")
    if call.name == "__syncthreads":
        yield edit("only the warp", "__syncwarp()")
    if "arrive" in words:
        yield edit("twice", f"({call.code}, {call.code})")
    if "copies" in words:
        yield edit("not after the copies", f"fagen::ptx::mbarrier_arrive({call.arguments[0]})")
    for one, other in (("full", "empty"), ("empty", "full")):
        swapped = re.sub(rf"(?<![a-z]){one}(?![a-z])", other, call.code)
        if swapped != call.code and _names(swapped) <= _names(text):
            yield edit(f"{other} barrier", swapped)
    if "wait" in words and call.template:
        yield edit("one pending more", call.code.replace(call.template, f"<{call.template[1:-1]} + 1>"))
    match call.arguments:
        case (barrier, parity) if "mbarrier" in words and "wait" in words:
            yield edit("other parity", with_arguments(barrier, f"({parity}) ^ 1"))
        case (barrier, count) if "mbarrier" in words and "init" in words:
            yield edit("one arrival more", with_arguments(barrier, f"({count}) + 1"))
            yield edit("one arrival less", with_arguments(barrier, f"({count}) - 1"))
        case (barrier, size) if "expect" in words:
            yield edit("more bytes", with_arguments(barrier, f"({size}) + 16"))
            yield edit("fewer bytes", with_arguments(barrier, f"({size}) - 16"))
        case (barrier, threads) if "barrier" in words:
            yield edit("a warp more", with_arguments(barrier, f"({threads}) + 32"))
            yield edit("a warp less", with_arguments(barrier, f"({threads}) - 32"))
            if "sync" in words:
                yield edit("no waiting", call.code.replace("_sync", "_arrive"))


def _names(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _moves(text: str, call: Call, words: set[str]) -> Iterator[Edit]:
    """An arrival before the statement that it comes after; a wait after the one that it comes before."""
    lines = text.splitlines(keepends=True)
    at = text.count("\n", 0, call.start)
    led = text[text.rfind("\n", 0, call.start) + 1 : call.start].strip()
    if led and not led.startswith("if "):
        return
    own = cpp.statement(lines, at)
    if words & {"arrive", "commit"} and (before := cpp.statement_before(lines, at)):
        what, first, second = "earlier", before, own
    elif "wait" in words and (after := cpp.statement_after(lines, own[-1])):
        what, first, second = "later", own, after
    else:
        return

    def code_of(part: range) -> str:
        return "".join(lines[part.start : part.stop])

    start = sum(map(len, lines[: first.start]))
    swapped = code_of(second) + code_of(range(first.stop, second.start)) + code_of(first)
    yield Edit(f"{call.name}: {what}", call.start, start, start + len(swapped), swapped)
