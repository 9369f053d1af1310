"""Hunts mutants: runs each on the cases that have it, seed after seed, until something objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from fagen.emit.source import Source
from fagen.errors import EmulatorError

from .kernels import CASES
from .mutant import Site, mutants

SEEDS = range(20)


@dataclass(frozen=True)
class Kill:
    """How a mutant was found out."""

    case: str
    seed: int
    kind: str  # of the emulator's error, or "wrong result"
    said: str


@cache
def population() -> dict[Site, dict[str, Source]]:
    """All mutants: by site, the changed kernel of every case that has the site."""
    found: dict[Site, dict[str, Source]] = {}
    for name, case in CASES.items():
        for site, source in mutants(case.source):
            found.setdefault(site, {})[name] = source
    return found


def hunt(site: Site, seeds: Iterable[int] = SEEDS) -> Kill | None:
    """The first case and seed that find the mutant out; None: it survives them all.

    Raises CompileError for a mutant that is no C++.
    """
    for name, source in population()[site].items():
        case = CASES[name]
        loaded = case.load(source)
        for seed in seeds:
            try:
                if fault := case.fault(loaded, seed):
                    return Kill(name, seed, "wrong result", fault)
            except EmulatorError as error:
                said = str(error)
                kind = said.partition(" in the emulator")[0].rpartition(": ")[2]
                return Kill(name, seed, kind, said)
    return None
