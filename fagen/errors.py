"""The errors fagen raises: one class per floor, all under `FagenError`.

A message names the spec key (with file:line) or the argument, the value found, and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


class FagenError(Exception):
    """Base of every error that fagen raises on purpose."""


@dataclass(frozen=True)
class Issue:
    """One thing wrong with a spec: where, which key, the value found, what is allowed, a hint."""

    where: str  # "specs/a.yaml:12", or "<dict>" for a spec that came from Python
    key: str  # "schedule.tile.q"
    message: str  # "is 100; allowed: multiples of 16 from 16 to 256"
    hint: str = ""  # "did you mean `head_dim`?"

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        line = f"{self.where}: {self.key}: {self.message}{hint}"
        # A key or value may hold anything; a terminal must not act on it.
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def shown(text: str) -> str:
    """`text` in back quotes, cut to a readable length."""
    return f"`{text if len(text) <= 60 else text[:57] + '...'}`"


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """A hint that names the closest of the known words; empty where none is close."""
    close = get_close_matches(str(word).lower(), list(known), n=1)
    return f"did you mean `{close[0]}`?" if close else ""


class SpecError(FagenError):
    """A spec that cannot be read or breaks a rule; carries every issue at once."""

    def __init__(self, issues: Iterable[Issue]):
        self.issues = tuple(issues)
        super().__init__("\n".join(map(str, self.issues)))

    def __reduce__(self) -> tuple[type[SpecError], tuple[tuple[Issue, ...]]]:
        """Pickled by its issues, so that it crosses from a worker process whole."""
        return type(self), (self.issues,)


class PlanError(FagenError):
    """A spec that does not fit the chip; names every term, the bytes wanted and the bytes allowed."""


class EmitError(FagenError):
    """A generated file that is missing or differs from what its spec prints."""


class CompileError(FagenError):
    """A compiler or a header is missing, the source is refused, or the resource report is not acceptable."""


class LaunchError(FagenError):
    """A kernel that cannot be loaded or launched on this device."""


class EmulatorError(FagenError):
    """The emulator objects to what a kernel does: a race, a missing wait, a deadlock, a stray access."""


class ArgumentError(FagenError, ValueError):
    """An argument of an op that cannot be used; raised before any kernel runs."""


class TuneError(FagenError):
    """Nothing that could be tuned, or nothing left of it; says what was refused and why."""
