"""Mutants that survive, each with the reason why it is harmless; all others must be found out, these not."""

from __future__ import annotations

_TURNS = "the order of the warpgroups' products decides the time they take, and no number"

_FIRST = "of an item's first tile K is not read again: the row maxima are always looked for"

ACCEPTED: dict[str, str] = {  # by str(Site)
    "kernel.cu: `release_k();`: release_k: earlier": _FIRST,
    "kernel.cu: `turns.wait();`: wait: later": _TURNS,
    "kernel.cu: `turns.wait();` (2): wait: delete": _TURNS
    + "; no turn follows, and the barrier ends with its CTA",
    "kernel.cu: `turns.wait();` (2): wait: later": _TURNS,
}
