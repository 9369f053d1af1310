"""The symbols that every formula of a plan is written in."""

from __future__ import annotations

import sympy as sp


def _symbol(name: str) -> sp.Symbol:
    return sp.Symbol(name, positive=True)


Br = _symbol("Br")
Bc = _symbol("Bc")
d = _symbol("d")
dv = _symbol("dv")
bytes_ = _symbol("bytes")
stages = _symbol("stages")
warps = _symbol("warps")
ctas = _symbol("ctas")
reserved = _symbol("reserved")
q_stages = _symbol("q_stages")
load_registers = _symbol("load_registers")
math_registers = _symbol("math_registers")
cluster = _symbol("cluster")
polynomial = _symbol("polynomial")
warps_q = _symbol("warps_q")
warps_dq = _symbol("warps_dq")
ds_stages = _symbol("ds_stages")

# What a family pads the columns of a head to.
PADDING = {"v2": "a multiple of 16", "v2 backward": "a multiple of 32", "v3": "a multiple of 32, at least 64"}

_TILES = {
    Br: "rows of Q per CTA (tile.q)",
    Bc: "rows of K and V per step (tile.kv)",
}
_RING = {
    bytes_: "bytes of one element of Q, K, V, O",
    stages: "K tiles, and V tiles, held in shared memory at once (stages.kv)",
}
_POLYNOMIAL = "share of the exponentials taken by a polynomial (softmax.exp2)"

# What the symbols in the budgets and engines of a family stand for; of its forward unless it says so.
MEANINGS: dict[str, dict[sp.Symbol, str]] = {
    "v1": {
        Br: "rows of Q and O per step (tile.q)",
        Bc: "rows of K and V per step of the outer loop (tile.kv)",
        d: f"columns of Q and K, padded to {PADDING['v2']}",
        dv: f"columns of V and O, padded to {PADDING['v2']}",
        bytes_: "bytes of one element of Q, K, V, O",
        warps: "warps per CTA, each with Br/warps rows of Q (roles.math.warps)",
    },
    "v1 backward": {
        Br: "rows of Q, O, dO and dQ per step",
        Bc: "rows of K, V, dK and dV per step of the outer loop",
        d: f"columns of Q and K, padded to {PADDING['v2 backward']}",
        dv: f"columns of V and O, padded to {PADDING['v2 backward']}",
        bytes_: "bytes of one element of Q, K, V, O, dO, dQ, P, dS",
        stages: "blocks of each of Q, dO, P and dS held in shared memory at once",
        warps: "warps per CTA",
        warps_q: "of them along the rows of Q in S, dP; along the columns of dK, dV",
        warps_dq: "of them along the rows of dQ; the others split its columns",
    },
    "v2": {
        **_TILES,
        d: f"columns of Q and K, padded to {PADDING['v2']}",
        dv: f"columns of V and O, padded to {PADDING['v2']}",
        **_RING,
        warps: "warps per CTA, each with Br/warps rows of Q (roles.math.warps)",
        ctas: "CTAs that share an SM (ctas_per_sm)",
        reserved: "bytes of shared memory that the driver takes per CTA",
        polynomial: _POLYNOMIAL,
    },
    "v2 backward": {
        Br: "rows of Q and dO per step (backward.tile.q)",
        Bc: "rows of K and V per CTA (backward.tile.kv)",
        d: f"columns of Q and K, padded to {PADDING['v2 backward']}",
        dv: f"columns of V and dO, padded to {PADDING['v2 backward']}",
        bytes_: "bytes of one element of Q, K, V, dO, P, dS",
        stages: "Q tiles, and dO tiles, held in shared memory at once (backward.stages.q)",
        ds_stages: "P tiles, and dS tiles, held in shared memory at once (backward.stages.ds)",
        warps: "warps per CTA",
        warps_q: "of them along the rows of Q in S, dP; along the columns of dK, dV (backward.warps.q)",
        warps_dq: "of them along the rows of dQ; the others split its columns (backward.warps.dq)",
        ctas: "CTAs that share an SM (backward.ctas_per_sm)",
        reserved: "bytes of shared memory that the driver takes per CTA",
    },
    "v3": {
        **_TILES,
        d: f"columns of Q and K, padded to {PADDING['v3']}",
        dv: f"columns of V and O, padded to {PADDING['v3']}",
        **_RING,
        q_stages: "Q tiles held in shared memory at once (stages.q)",
        load_registers: "registers of a thread that loads (roles.load.registers)",
        math_registers: "registers of a thread that multiplies (roles.math.registers)",
        cluster: "CTAs that load each K and V tile together (cluster)",
        polynomial: _POLYNOMIAL,
    },
}
