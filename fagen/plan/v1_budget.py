"""What v1's kernels ask of an SM, and the paper's rule for their blocks.

The rule (FlashAttention, arXiv 2205.14135, Algorithms 1 and 4): Bc = ceil(M/4d) and Br = min(Bc, d), M the
elements that shared memory of a CTA holds; with V as wide as dv, Bc = ceil(M / 2(d + dv)). That counts K, V,
Q and O, of which O is in registers here, in fp32. What else there is, S in registers, in the backward dO, dQ,
P and dS as well, may ask for less.

The register terms follow the fragments of mma.sync, as in v2_budget.py.
"""

from __future__ import annotations

from typing import NamedTuple

import sympy as sp

from fagen.hw.arch import Arch
from fagen.plan.budget import SMEM_CTA, THREADS, Budget, Knob, Resource, Values
from fagen.plan.ir import Tiling
from fagen.plan.symbols import Bc, Br, bytes_, d, dv, stages, warps, warps_q
from fagen.plan.v2_budget import MAX_WARPS, REGISTERS, registers_allowed
from fagen.spec.rules import ROWS_PER_WARP

RULE_KV = "rows of a K/V block, by the paper's rule"
RULE_Q = "rows of a Q block, by the paper's rule"
FRAGMENTS = 16  # operands of two k-steps
ADDRESSING = 36  # pointers, strides, counters and bounds
BACKWARD_ADDRESSING = 44
PANEL = 64  # columns of a panel of smem/tile.cuh, or half of that, inside which addresses are constants apart


class Rule(NamedTuple):
    """The largest blocks that the rule allows, in rows."""

    q: int  # Br
    kv: int  # Bc


def rule(arch: Arch, dim: int, dim_v: int, element_bytes: int) -> Rule:
    """The paper's blocks for heads of `dim` and `dim_v` columns in the shared memory of one CTA of `arch`."""
    elements = arch.smem_per_cta // element_bytes
    kv = -(-elements // (2 * (dim + dim_v)))
    return Rule(q=min(kv, dim), kv=kv)


def _rule(arch: Arch, at: Values) -> Rule:
    return rule(arch, int(at[d]), int(at[dv]), int(at[bytes_]))


_BY_THE_RULE = (
    Resource(RULE_KV, "rows", (("Bc <= ceil(M / 2(d + dv))", Bc),), lambda arch, at: _rule(arch, at).kv),
    Resource(RULE_Q, "rows", (("Br <= min(Bc, d)", Br),), lambda arch, at: _rule(arch, at).q),
)
_THREADS = Resource(THREADS, "threads", (("warps", 32 * warps),), lambda arch, _: arch.max_threads_per_sm)


def _cut(dim: sp.Expr) -> sp.Expr:
    """5/8 of a register, up to 20, per column of a warp's part in the next panel of a tile; estimated."""
    columns, panel = dim / warps_q, PANEL - sp.Mod(dim, PANEL)  # half a panel's columns: half as wide panels
    return sp.Min(20, sp.floor(columns / panel) * sp.Mod(columns, panel) * sp.Rational(5, 8))


_rows = Br / warps  # of one warp
_FORWARD = (
    *_BY_THE_RULE,
    Resource(
        SMEM_CTA,
        "bytes",
        (
            ("K block", Bc * d * bytes_),
            ("V block", Bc * dv * bytes_),
            ("Q block, O staged through it", Br * sp.Max(d, dv) * bytes_),
        ),
        lambda arch, _: arch.smem_per_cta,
    ),
    Resource(
        REGISTERS,
        "registers",
        (
            ("S accumulator, then P", _rows * Bc / 32),
            ("O accumulator", _rows * dv / 32),
            ("fragments of two k-steps", _rows / 2 + 8),
            ("l, m and what follows from them", _rows),
            ("addresses and counters", sp.Integer(ADDRESSING)),
        ),
        registers_allowed,
    ),
    _THREADS,
)

_BACKWARD = (
    *_BY_THE_RULE,
    Resource(
        SMEM_CTA,
        "bytes",
        (
            ("K and V blocks", Bc * (d + dv) * bytes_),
            ("Q blocks, dQ staged through", Br * d * bytes_ * stages),
            ("O block and dO blocks", Br * dv * bytes_ * (stages + 1)),
            ("P and dS blocks", 2 * Br * Bc * bytes_ * stages),
            ("l, m and D of each row", 8 * Br),
            ("mbarriers", 8 * (stages + 1)),
        ),
        lambda arch, _: arch.smem_per_cta,
    ),
    Resource(
        REGISTERS,
        "registers",
        (
            ("dK and dV accumulators", Bc * (d + dv) / (32 * warps)),
            ("S and dP, or dQ in their place", sp.Max(2 * Br * Bc, Br * d) / (32 * warps)),
            ("fragments of two k-steps", sp.Integer(FRAGMENTS)),
            ("addresses and counters", sp.Integer(BACKWARD_ADDRESSING)),
            ("addresses of columns that cut panels", sp.Max(_cut(d), _cut(dv))),
        ),
        registers_allowed,
    ),
    _THREADS,
)


def _forward_knobs(tiling: Tiling) -> tuple[Knob, ...]:
    rows = ROWS_PER_WARP["v1"]
    fitting_warps = sorted(
        n for n in (tiling.q // each for each in rows if tiling.q % each == 0) if n <= MAX_WARPS
    )
    return (
        Knob("tile.q", Br, range(16 * tiling.warps, tiling.q + 1, 16 * tiling.warps), tiling.q),
        Knob("tile.kv", Bc, range(16, tiling.kv + 1, 16), tiling.kv),
        Knob("roles.math.warps", warps, fitting_warps, tiling.warps),
    )


def _backward_knobs(tiling: Tiling) -> tuple[Knob, ...]:
    rows_q, rows_kv = 16 * max(tiling.warps_q, tiling.warps_dq), 16 * tiling.warps_kv
    return (
        Knob("tile.q", Br, range(rows_q, tiling.q + 1, rows_q), tiling.q),
        Knob("tile.kv", Bc, range(rows_kv, tiling.kv + 1, rows_kv), tiling.kv),
    )


FORWARD = Budget(lambda _: _FORWARD, _forward_knobs, REGISTERS)
BACKWARD = Budget(lambda _: _BACKWARD, _backward_knobs, REGISTERS)
