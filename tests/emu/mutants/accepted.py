"""Mutants that survive, each with the reason why it is harmless; all others must be found out, these not."""

from __future__ import annotations

_TURNS = "the order of the warpgroups' products decides the time they take, and no number"

_FIRST = "of an item's first tile K is not read again: the row maxima are always looked for"

_ORDER = "the emulator's CTAs run one after the other here: the K/V tiles before have added"

ACCEPTED: dict[str, str] = {  # by str(Site)
    "v3/forward.cu: `release_k();`: release_k: earlier": _FIRST,
    "v3/forward.cu: `turns.wait();`: wait: later": _TURNS,
    "v3/forward.cu: `turns.wait();` (2): wait: delete": _TURNS
    + "; no turn follows, and the barrier ends with its CTA",
    "v3/forward.cu: `turns.wait();` (2): wait: later": _TURNS,
    "v2/backward.cu: `arrivals.wait(reading);`: wait: later": "dQ of the visit before needs no Q and no dO",
    "v2/backward.cu: `ptx::wait_for_signals(turn, kv_tile - mask.begin(done.tile * Cfg::kTileQ) / "
    "Cfg::kTileKv);`: wait_for_signals: delete": _ORDER,
    "v2/backward.cu: `ptx::wait_for_signals(turn, kv_tile - mask.begin(done.tile * Cfg::kTileQ) / "
    "Cfg::kTileKv);`: wait_for_signals: later": _ORDER,
    "v2/backward.cu: `__syncwarp();`: __syncwarp: delete": "every lane has waited for itself",
    "v2/backward_prepare.cu: `if (threadIdx.x == 0) ptx::st_global(p.turns + tile, 0u);`: "
    "all threads, not one": "they write the same",
}
