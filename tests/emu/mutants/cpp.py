"""Just enough of C++ to find calls and statements in code that clang-format has laid out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*")
_CALL = re.compile(r"(?<![\w.:>])(?:\w+(?:::|\.|->))*(?P<name>\w+)(?P<template><[^<>(){};]*>)?\(")
_BEFORE = re.compile(r"([\w>&*]+)\s*$")
_NO_TYPE = ("return", "else", "do", "&&")  # before `name(`; anything else that looks like a type declares it
_SKIPPED = ("#", "//", "template")


@dataclass(frozen=True)
class Call:
    """A call in a text: `name<template>(arguments)`, with whatever qualifies the name."""

    name: str
    template: str  # "" or "<...>"
    arguments: tuple[str, ...]
    start: int
    end: int
    code: str


def without_comments(text: str) -> str:
    """`text` with blanks for comments: every other character keeps its place."""
    return _COMMENT.sub(lambda comment: " " * len(comment[0]), text)


def calls(text: str) -> Iterator[Call]:
    """All calls in `text`, which has no comments."""
    for found in _CALL.finditer(text):
        word = _BEFORE.search(text, max(0, found.start() - 40), found.start())
        if word and word[1] not in _NO_TYPE:
            continue
        end = _closing(text, found.end() - 1)
        yield Call(
            found["name"],
            found["template"] or "",
            _cut(text[found.end() : end - 1]),
            found.start(),
            end,
            text[found.start() : end],
        )


def _depth(text: str) -> int:
    return sum((letter in "([{") - (letter in ")]}") for letter in text)


def _closing(text: str, start: int) -> int:
    """The end of what is in the parentheses that open at `start`, and of them."""
    ends = (found.end() for found in re.compile(r"\)").finditer(text, start))
    return next(end for end in ends if not _depth(text[start:end]))


def _cut(text: str) -> tuple[str, ...]:
    """The arguments of a call, cut at its own commas."""
    cuts = [i for i, letter in enumerate(text) if letter == "," and not _depth(text[:i])]
    ends = [*cuts, len(text)]
    return tuple(text[a + 1 : b].strip() for a, b in zip([-1, *cuts], ends, strict=True) if text)


def statement(lines: list[str], first: int) -> range:
    """The lines of the statement that starts on line `first`."""
    depth = 0
    for i in range(first, len(lines)):
        depth += _depth(lines[i])
        if depth <= 0 and lines[i].rstrip().endswith((";", "}")):
            return range(first, i + 1)
    return range(first, len(lines))


def statement_before(lines: list[str], own: range) -> range | None:
    """The lines of the statement before `own`, in the same block."""
    indent = _indent(lines[own.start])
    for i in range(own.start - 1, -1, -1):
        line = lines[i].lstrip()
        if not line or line.startswith(_SKIPPED) or _indent(lines[i]) > indent:
            continue
        if _indent(lines[i]) < indent:
            return None
        if not line.startswith("}"):
            return statement(lines, i)
    return None


def statement_after(lines: list[str], own: range) -> range | None:
    """The lines of the statement after `own`, in the same block."""
    for i in range(own.stop, len(lines)):
        line = lines[i].lstrip()
        if line.startswith("}") or (line and _indent(lines[i]) < _indent(lines[own.start])):
            return None
        if line and not line.startswith(_SKIPPED):
            return statement(lines, i)
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
