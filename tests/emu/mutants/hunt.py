"""Hunts mutants: runs each on the cases that have it, seed after seed, until something objects."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import c_int
from dataclasses import dataclass
from functools import cache

from fagen.errors import EmulatorError

from .kernels import CASES
from .mutant import CHOSEN, Mutant, Site, mutants

SEEDS = range(20)


@dataclass(frozen=True)
class Kill:
    """How a mutant was found out."""

    case: str
    seed: int
    kind: str  # of the emulator's error, or "wrong result"
    said: str


@cache
def population() -> dict[Site, dict[str, Mutant]]:
    """All mutants: by site, that of every case that has the site."""
    found: dict[Site, dict[str, Mutant]] = {}
    for name, case in CASES.items():
        for site, mutant in mutants(case.source, case.planned.template):
            found.setdefault(site, {})[name] = mutant
    return found


def hunt(site: Site, seeds: Iterable[int] = SEEDS) -> Kill | None:
    """The first case and seed that find the mutant out; None: it survives them all.

    Raises CompileError for a mutant that is no C++.
    """
    for name, mutant in population()[site].items():
        case = CASES[name]
        loaded = case.load(mutant.source)
        chosen = c_int.in_dll(loaded.library._entry, CHOSEN)
        for seed in seeds:
            chosen.value = mutant.number
            try:
                if fault := case.fault(loaded, seed):
                    return Kill(name, seed, "wrong result", fault)
            except EmulatorError as error:
                said = str(error)
                kind = said.partition(" in the emulator")[0].rpartition(": ")[2]
                return Kill(name, seed, kind, said)
            finally:
                chosen.value = 0
    return None
