"""How a synchronisation is taken away or weakened: one table of patterns, for any kernel and header.

What is mutated is known by its name: __syncthreads and __syncwarp; any function that has one of VERBS among
the words of its name (`ptx::mbarrier_arrive`, `ring.wait_full`, `read.advance`); and NAMES.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from . import cpp
from .cpp import Call

VERBS = frozenset(
    ("wait", "arrive", "fence", "commit", "sync", "init", "inval", "expect", "advance", "acquire", "release")
)
# What else moves between roles, items and launches, and what decides how a tile is computed.
NAMES = frozenset(
    (
        *("begin_fill", "end_fill", "pass", "pass_last", "st_shared", "ld_shared"),
        *("load_q", "load_k", "load_v"),
        *("atomic_add", "atomic_add_ordered", "st_global", "finish", "clear_rows"),
        *("fill", "signal", "reduce_add", "add_dq"),
        *("apply", "try_exponentiate", "gemm_qk", "scale"),
    )
)
CUDA = ("__syncthreads", "__syncwarp")
# They have such a verb, and synchronise nothing.
_OTHERWISE = re.compile(r"ptx::finish_before_wait\(|smem::advance\(")

# It makes no difference to memory on which side of these something happens.
_REGISTERS_ONLY = re.compile(
    r"\b(?:pin|wgmma_fence)\(|"
    r"^ *const (?:uint32_t|int|bool) \w+ =(?!.*(?:shared|fill|wait|softmax)\w*\()"
)
_ASKS = re.compile(r"(?:[!+=(,?:]|&&|\|\||\breturn)\s*$")  # before a call whose answer is used


class Change(NamedTuple):
    """A change of text[start:end].

    An `answer` and an `action` are expressions, the second without a value; a `statement` is whole lines,
    either dropped or put in between; a `constant` is anything else.
    """

    kind: Literal["answer", "action", "statement", "constant"]
    start: int
    end: int
    by: str


class Edit(NamedTuple):
    """One mutation."""

    what: str  # "wait_full: delete"
    at: int  # where the code is that it is about
    changes: tuple[Change, ...]


def edits(text: str) -> Iterator[Edit]:
    """Every mutation of `text`."""
    bare = cpp.without_comments(text)
    for call in cpp.calls(bare):
        words = set(call.name.split("_"))
        named = call.name in NAMES or (not call.name.startswith("__") and words & VERBS)
        if call.name in CUDA or (named and not _OTHERWISE.match(call.code)):
            yield from _of_call(bare, call, words)
            yield from _moves(bare, call, words)
    for what, pattern, by in _OTHERS:
        for found in pattern.finditer(bare):
            kind = "constant" if what.startswith("one tile") else "answer"
            yield Edit(what, found.start("x"), (Change(kind, *found.span("x"), found.expand(by)),))


# What no call expresses; `x` is replaced. Position{stage, parity}: where a side of a ring starts.
_OTHERS = tuple(
    (what, re.compile(pattern), by)
    for what, pattern, by in (
        ("never flip the phase", r"(?P<x>\b(\w*(?:parity|phase)\w*) \^= 1)", r"\2 ^= 0"),
        ("never wrap around", r"(?<!int )(?P<x>\bstage = 0\b)", "stage = stage"),
        ("never leave the stage", r"(?<!; )(?P<x>\+\+stage\b)", "stage"),
        ("start in the other phase", r"\bPosition \w+\(\) \{ return \{\w+, (?P<x>[01])\}", r"1u - \g<x>"),
        ("one tile more ahead", r"(?P<x>(\bk(?:Ahead|Slack|Lag)\w* = )([^;]+));", r"\2 (\3) + 1"),
        ("one tile less ahead", r"(?P<x>(\bk(?:Ahead|Slack|Lag)\w* = )([^;]+));", r"\2 (\3) - 1"),
        (
            "all threads, not one",
            r"\bif \((?P<x>(?:threadIdx\.x|lane_id\(\)|warp_id\(\)) == 0)\)",
            "true",
        ),
        ("only the first CTA", r"\bmap_to_rank\([^;]*?(?P<x>lane_id\(\))\)", "0"),
        ("not the other CTAs", r"lane_id\(\) < (?P<x>kCluster)\b", "1"),
        ("sums of any size", r"\|= (?P<x>[^;]* > Policy::kGrowth);", "false"),
        ("numbers of any size", r"\|= (?P<x>[^;]* > kLargeExponent);", "false"),
        ("masked tiles too", r"&& (?P<x>!hides)\)", "true"),
        ("O of the item before, too", r"\bissue_pv\((?P<x>[^)]*(?:!is_first|!= item[^)]*))\)", "true"),
        ("sums of the item before, too", r"(?P<x>\bsoftmax = attn::Softmax<1>\([\w.]+\));", "softmax"),
        ("without the last V", r"\bpending = (?P<x>true);", "false"),
    )
)


def _of_call(text: str, call: Call, words: set[str]) -> Iterator[Edit]:
    asked = _ASKS.search(text, max(0, call.start - 20), call.start)

    def edit(what: str, by: str) -> Edit:
        change = Change("answer" if asked else "action", call.start, call.end, by)
        return Edit(f"{call.name}: {what}", call.start, (change,))

    def with_arguments(*arguments: str) -> str:
        return f"{call.code[: call.code.index('(')]}({', '.join(arguments)})"

    yield edit("delete", "true" if asked else "void()")
    if call.name == "__syncthreads":
        yield edit("only the warp", "__syncwarp()")
    if words & {"arrive", "pass", "release"} and "registers" not in words:
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

    def start_of(line: int) -> int:
        return sum(map(len, lines[:line]))

    if words & {"arrive", "commit", "release"}:
        what, other = "earlier", cpp.statement_before(lines, own)
        while other and _REGISTERS_ONLY.search(lines[other.start]):
            other = cpp.statement_before(lines, range(other.start, own.stop))
        place = start_of(other.start) if other else None
    elif "wait" in words:
        what, other = "later", cpp.statement_after(lines, own)
        while other and _REGISTERS_ONLY.search(lines[other.start]):
            other = cpp.statement_after(lines, range(own.start, other.stop))
        place = start_of(other.stop) if other else None
    else:
        return
    if place is None:
        return
    start, end = start_of(own.start), start_of(own.stop)
    moved = (Change("statement", place, place, text[start:end]), Change("statement", start, end, ""))
    yield Edit(f"{call.name}: {what}", call.start, moved)
