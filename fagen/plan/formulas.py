"""The IO model's formulas: bytes that attention moves, in sympy; `io.py` puts numbers into them.

Three algorithms, forward and backward: standard attention (S and P materialised), v1's loop order (K/V blocks
outside, Q blocks inside) and the loop order of v2 to v4 (the forward goes over Q blocks outside, the backward
over K/V blocks). Sources: FlashAttention (arXiv 2205.14135) Algorithms 0, 1, 3, 4 and Theorem 2;
FlashAttention-2 (arXiv 2307.08691) Algorithms 1 and 2.

Each formula says at which level it counts:

- "HBM": bytes that cross the memory bus. For standard and v1 this is the papers' machine, which has no cache
  between HBM and shared memory; for v2 it is what is left after L2 (see `io.reads_from_hbm`).
- "L2": bytes that the SMs ask of L2, whether L2 holds them or not.

docs/io_model.md derives the formulas and states the assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from fagen.plan.symbols import Bc, Br, bytes_, d, dv

B, Hq, Hk, Nq, Nk, M, Tr, Tc, f, R, N = sp.symbols("B Hq Hk Nq Nk M Tr Tc f R N", positive=True)

SYMBOLS: dict[sp.Symbol, str] = {
    B: "sequences in the batch",
    Hq: "query heads",
    Hk: "key/value heads",
    Nq: "queries per sequence",
    Nk: "keys per sequence",
    d: "columns of Q and K, as they are in memory",
    dv: "columns of V and O, as they are in memory",
    bytes_: "bytes of one element of Q, K, V, O, their gradients, and S, P where they are materialised",
    M: "elements that shared memory of one CTA holds",
    Br: "rows of a Q block",
    Bc: "rows of a K/V block",
    Tr: "Q blocks, ceil(Nq/Br); of those that load K and V together (cluster, pack_gqa) the share of one",
    Tc: "K/V blocks, ceil(Nk/Bc)",
    f: "share of the inner loops that the mask leaves: 1 without a mask, about 1/2 for causal",
    R: "times the operands of the inner loop come from HBM: 1 when L2 absorbs the re-reads",
}

STATISTIC = 4  # bytes of one fp32 value per row: l, m, LSE, D = rowsum(dO * O)

# v1's blocks (Algorithm 1, line 1): K_j, V_j, Q_i, O_i share M; ceil(M/4d) where d = dv.
V1_BLOCKS = {Bc: sp.ceiling(M / (2 * (d + dv))), Br: sp.Min(sp.ceiling(M / (2 * (d + dv))), d)}


@dataclass(frozen=True)
class Part:
    """What one tensor, or one step of an algorithm, adds to a formula."""

    name: str
    bytes: sp.Expr


@dataclass(frozen=True)
class Formula:
    """Bytes of one pass of one algorithm at one level, part by part."""

    algorithm: str  # "standard" | "v1" | "v2"
    direction: str  # "forward" | "backward"
    level: str  # "HBM" | "L2"
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> sp.Expr:
        """Sum of the parts."""
        return sp.Add(*(part.bytes for part in self.parts))


def _v2_backward(level: str, rereads: sp.Expr, dq_bytes: int) -> Formula:
    """v2's backward: one CTA per K/V block; the rows of the Q side come by `rereads` times.

    dQ is summed in fp32 by atomic adds, dq_bytes per element and visit: 4 on the way to L2, and 8 (fetched
    and written back) where L2 does not hold the accumulator.
    """
    rows = B * Hq * Nq
    return Formula(
        "v2",
        "backward",
        level,
        (
            Part("read O, dO; write D, dQ accumulator = 0", rows * (2 * dv * bytes_ + STATISTIC + 4 * d)),
            Part("read K, V; write dK, dV", 2 * B * Hk * Nk * (d + dv) * bytes_),
            Part("read Q, dO, LSE, D", rows * rereads * ((d + dv) * bytes_ + 2 * STATISTIC)),
            Part("add to dQ accumulator (fp32)", rows * rereads * dq_bytes * d),
            Part("read dQ accumulator; write dQ", rows * d * (4 + bytes_)),
        ),
    )


FORMULAS: tuple[Formula, ...] = (
    Formula(
        "standard",
        "forward",
        "HBM",
        (
            Part("read Q, K", B * (Hq * Nq + Hk * Nk) * d * bytes_),
            Part("write S; read S, write P; read P", 4 * B * Hq * Nq * Nk * bytes_),
            Part("read V", B * Hk * Nk * dv * bytes_),
            Part("write O", B * Hq * Nq * dv * bytes_),
        ),
    ),
    Formula(
        "v1",
        "forward",
        "HBM",
        (
            Part("read K, V", B * Hq * Nk * (d + dv) * bytes_),
            Part("write O, l, m = 0, 0, -inf", B * Hq * Nq * (dv * bytes_ + 2 * STATISTIC)),
            Part("read Q", B * Hq * f * Tc * Nq * d * bytes_),
            Part("read and write O, l, m", 2 * B * Hq * f * Tc * Nq * (dv * bytes_ + 2 * STATISTIC)),
        ),
    ),
    Formula(
        "v2",
        "forward",
        "L2",
        (
            Part("read Q, write O", B * Hq * Nq * (d + dv) * bytes_),
            Part("write LSE", B * Hq * Nq * STATISTIC),
            Part("read K, V", B * Hq * f * Tr * Nk * (d + dv) * bytes_),
        ),
    ),
    Formula(
        "v2",
        "forward",
        "HBM",
        (
            Part("read Q, write O", B * Hq * Nq * (d + dv) * bytes_),
            Part("write LSE", B * Hq * Nq * STATISTIC),
            Part("read K, V", B * Hk * R * Nk * (d + dv) * bytes_),
        ),
    ),
    Formula(
        "standard",
        "backward",
        "HBM",
        (
            Part("read P, dO; write dV", B * (Hq * Nq * (Nk + dv) + Hk * Nk * dv) * bytes_),
            Part("read dO, V; write dP", B * (Hq * Nq * (dv + Nk) + Hk * Nk * dv) * bytes_),
            Part("read P, dP; write dS", 3 * B * Hq * Nq * Nk * bytes_),
            Part("read dS, K; write dQ", B * (Hq * Nq * (Nk + d) + Hk * Nk * d) * bytes_),
            Part("read dS, Q; write dK", B * (Hq * Nq * (Nk + d) + Hk * Nk * d) * bytes_),
        ),
    ),
    Formula(
        "v1",
        "backward",
        "HBM",
        (
            Part("write dQ = 0", B * Hq * Nq * d * bytes_),
            Part("read K, V; write dK, dV", 2 * B * Hq * Nk * (d + dv) * bytes_),
            Part("read Q, O, dO, l, m", B * Hq * f * Tc * Nq * ((d + 2 * dv) * bytes_ + 2 * STATISTIC)),
            Part("read and write dQ", 2 * B * Hq * f * Tc * Nq * d * bytes_),
        ),
    ),
    _v2_backward("L2", f * Tc, dq_bytes=4),
    _v2_backward("HBM", R, dq_bytes=8),
)


def formula(algorithm: str, direction: str, level: str) -> Formula:
    """The formula of that algorithm ("standard", "v1", "v2"), direction and level ("HBM", "L2")."""
    key = (algorithm, direction, level)
    return next(one for one in FORMULAS if (one.algorithm, one.direction, one.level) == key)


def law(one: Formula) -> sp.Expr:
    """How a formula grows, without constants: one head, N queries and keys, d = dv, no mask, R = 1.

    What is left are the monomials that no other one bounds where 1 <= d <= M <= N*d and Br, Bc <= N, which is
    where Theorem 2 of the v1 paper holds: N**2*d**2/M for v1 beside N*d + N**2 for standard attention.
    """
    one_head = {B: 1, Hq: 1, Hk: 1, f: 1, R: 1, bytes_: 1, Nq: N, Nk: N, dv: d, Tr: N / Br, Tc: N / Bc}
    total = one.bytes.subs(one_head)
    if one.algorithm == "v1":
        total = total.subs(Bc, M / (4 * d))
    monomials = {term.as_coeff_Mul()[1] for term in sp.Add.make_args(sp.expand(total))}

    # d, Br and N/Br are free factors >= 1 (M is worth d*Br elements): a monomial is bounded by another one if
    # their ratio has none of them below the line.
    blocks = sp.Symbol("blocks", positive=True)
    free = {M: d * Br, Bc: Br, N: Br * blocks}

    def bounds(big: sp.Expr, small: sp.Expr) -> bool:
        return big != small and sp.denom(sp.simplify((big / small).subs(free))) == 1

    return sp.Add(*(m for m in monomials if not any(bounds(other, m) for other in monomials)))
