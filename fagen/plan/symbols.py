"""The symbols that every formula of a plan is written in."""

from __future__ import annotations

import sympy as sp

MEANINGS: dict[sp.Symbol, str] = {}


def _symbol(name: str, meaning: str) -> sp.Symbol:
    symbol = sp.Symbol(name, positive=True)
    MEANINGS[symbol] = meaning
    return symbol


Br = _symbol("Br", "rows of Q per CTA (tile.q)")
Bc = _symbol("Bc", "rows of K and V per step (tile.kv)")
d = _symbol("d", "columns of Q and K, padded to a multiple of 16")
dv = _symbol("dv", "columns of V and O, padded to a multiple of 16")
bytes_ = _symbol("bytes", "bytes of one element of Q, K, V, O")
stages = _symbol("stages", "K tiles, and V tiles, held in shared memory at once (stages.kv)")
warps = _symbol("warps", "warps per CTA, each with Br/warps rows of Q (roles.math.warps)")
ctas = _symbol("ctas", "CTAs that share an SM (ctas_per_sm)")
reserved = _symbol("reserved", "bytes of shared memory that the driver takes per CTA")
