"""The IO model's formulas: bytes that attention moves, in sympy; `io.py` puts numbers into them.

Three algorithms, forward and backward: standard attention (S and P materialised), v1's loop order (K/V blocks
outside, Q blocks inside) and the loop order of v2 to v4 (the forward goes over Q blocks outside, the backward
over K/V blocks). Sources: FlashAttention (arXiv 2205.14135) Algorithms 0, 1, 3, 4 and Theorem 2;
FlashAttention-2 (arXiv 2307.08691) Algorithms 1 and 2.

Each formula says at which level it counts:

- "paper": bytes that cross the memory bus of the papers' machine, which has no cache between HBM and shared
  memory. Standard attention and v1 with the blocks of its paper.
- "L2": bytes that the SMs ask of L2, whether L2 holds them or not.
- "HBM": bytes that cross the memory bus: what L2 leaves of them (see `io.reads_from_hbm`, `io.missed`).

docs/io_model.md derives the formulas and states the assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from fagen.plan.symbols import Bc, Br, bytes_, d, dv

B, Hq, Hk, Nq, Nk, M, Tr, Tc, f, R, N = sp.symbols("B Hq Hk Nq Nk M Tr Tc f R N", positive=True)
dp, miss = sp.symbols("dp miss", positive=True)

SYMBOLS: dict[sp.Symbol, str] = {
    B: "sequences in the batch",
    Hq: "query heads",
    Hk: "key/value heads",
    Nq: "queries per sequence",
    Nk: "keys per sequence",
    d: "columns of Q and K, as they are in memory",
    dv: "columns of V and O, as they are in memory",
    dp: "columns of v2's dQ sum: d padded to a multiple of 16",
    bytes_: "bytes of one element of Q, K, V, O, their gradients, and S, P where they are materialised",
    M: "elements that shared memory of one CTA holds",
    Br: "rows of a Q block",
    Bc: "rows of a K/V block",
    Tr: "Q blocks, ceil(Nq/Br); of those that load K and V together (cluster, pack_gqa) the share of one",
    Tc: "K/V blocks, ceil(Nk/Bc)",
    f: "share of the inner loops that the mask leaves: 1 without a mask, about 1/2 for causal",
    R: "times the operands of v2's inner loop come from HBM: 1 when L2 absorbs the re-reads",
    miss: "share of what is come back to (v1: Q, O, l, m, dQ; standard: S, P; v2: dQ sum) that has left L2",
}

STATISTIC = 4  # bytes of one fp32 value per row: l, m, LSE, D = rowsum(dO * O)
ACCUMULATOR = 4  # bytes of one fp32 value of v2's dQ sum, and of v1's O and dQ between K/V blocks

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
    level: str  # "paper" | "L2" | "HBM"
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> sp.Expr:
        """Sum of the parts."""
        return sp.Add(*(part.bytes for part in self.parts))


def _standard(level: str, again: sp.Expr) -> tuple[Formula, Formula]:
    """Forward and backward. `again`: share of S, P, dP and dS that is no longer at hand when it is read.

    What crosses HBM is PyTorch's: its softmax backward writes P o dP before it sums rows of that.
    """
    square = B * Hq * Nq * Nk * bytes_
    softmax_gradient = Part("read P, dP; write dS", (1 + 2 * again) * square)
    if level == "HBM":
        softmax_gradient = Part("read P, dP; write P o dP; read both; write dS", (2 + 4 * again) * square)
    forward = (
        Part("read Q, K", B * (Hq * Nq + Hk * Nk) * d * bytes_),
        Part("write S; read S, write P; read P", (2 + 2 * again) * square),
        Part("read V", B * Hk * Nk * dv * bytes_),
        Part("write O", B * Hq * Nq * dv * bytes_),
    )
    backward = (
        Part("read P, dO; write dV", square + B * (Hq * Nq + Hk * Nk) * dv * bytes_),
        Part("read dO, V; write dP", square + B * (Hq * Nq + Hk * Nk) * dv * bytes_),
        softmax_gradient,
        Part("read dS, K; write dQ", again * square + B * (Hq * Nq + Hk * Nk) * d * bytes_),
        Part("read dS, Q; write dK", again * square + B * (Hq * Nq + Hk * Nk) * d * bytes_),
    )
    return Formula("standard", "forward", level, forward), Formula("standard", "backward", level, backward)


def _v1(level: str, kv_heads: sp.Expr, again: sp.Expr) -> tuple[Formula, Formula]:
    """Forward and backward: one CTA per head, which comes back to its Q side at every K/V block.

    `kv_heads`: those whose K and V are read in the forward, for each CTA or once for all that share them.
    `again`: share of the Q side that is no longer at hand when the next K/V block comes to it.
    """
    rows = B * Hq * Nq
    visits = f * Tc
    reads = visits * again + 1 - again  # the first from HBM, of the others what is gone
    # The backward's add to dQ is one passage to L2; on paper and to HBM it is two, fetched and written back.
    added = visits if level == "L2" else 2 * visits * again
    state = dv * ACCUMULATOR + 2 * STATISTIC
    forward = (
        Part("read K, V", B * kv_heads * Nk * (d + dv) * bytes_),
        Part("write O, l, m = 0, 0, -inf", rows * state),
        Part("read Q", rows * reads * d * bytes_),
        Part("read and write O, l, m", 2 * rows * visits * again * state),
        Part("read O, write it rounded", rows * dv * (again * ACCUMULATOR + bytes_)),
    )
    backward = (
        Part("write dQ = 0", rows * d * ACCUMULATOR),
        Part("read K, V; write dK, dV", 2 * B * (Hq if level == "paper" else Hk) * Nk * (d + dv) * bytes_),
        Part("read Q, O, dO, l, m", rows * reads * ((d + 2 * dv) * bytes_ + 2 * STATISTIC)),
        Part("add to dQ", rows * added * d * ACCUMULATOR),
        Part("read dQ, write it rounded", rows * d * (again * ACCUMULATOR + bytes_)),
    )
    return Formula("v1", "forward", level, forward), Formula("v1", "backward", level, backward)


def _v2_forward(level: str, kv_reads: sp.Expr) -> Formula:
    """One CTA per Q block; K and V come by `kv_reads` times, counted over all heads."""
    parts = (
        Part("read Q, write O", B * Hq * Nq * (d + dv) * bytes_),
        Part("write LSE", B * Hq * Nq * STATISTIC),
        Part("read K, V", B * kv_reads * Nk * (d + dv) * bytes_),
    )
    return Formula("v2", "forward", level, parts)


def _v2_backward(level: str, visits: sp.Expr, dq_passages: sp.Expr) -> Formula:
    """Three kernels: prepare, main (one CTA per K/V block), convert.

    The Q side comes by `visits` times; each value of the dQ sum passes `dq_passages` times from the zero that
    prepare writes to the read of convert. An atomic add is one passage to L2; to HBM it is two, fetched and
    written back.
    """
    rows = B * Hq * Nq
    parts = (
        Part("read O, dO, LSE; write LSE, D", rows * (2 * dv * bytes_ + 3 * STATISTIC)),
        Part("read K, V; write dK, dV", 2 * B * Hk * Nk * (d + dv) * bytes_),
        Part("read Q, dO, LSE, D", rows * visits * ((d + dv) * bytes_ + 2 * STATISTIC)),
        Part("dQ sum: write 0, add, read", rows * dq_passages * dp * ACCUMULATOR),
        Part("write dQ", rows * d * bytes_),
    )
    return Formula("v2", "backward", level, parts)


FORMULAS: tuple[Formula, ...] = (
    *_standard("paper", sp.Integer(1)),
    *_standard("HBM", miss),
    *_v1("paper", Hq, sp.Integer(1)),
    *_v1("L2", Hq, sp.Integer(1)),
    *_v1("HBM", Hk, miss),
    _v2_forward("L2", Hq * f * Tr),
    _v2_forward("HBM", Hk * R),
    _v2_backward("L2", f * Tc, 2 + f * Tc),
    # What is still in L2 when main comes, and when convert does, is neither written back nor fetched.
    _v2_backward("HBM", R, 3 * miss + 2 * R - 1),
)


def formula(algorithm: str, direction: str, level: str) -> Formula:
    """The formula of that algorithm, direction and level; StopIteration where there is none."""
    key = (algorithm, direction, level)
    return next(one for one in FORMULAS if (one.algorithm, one.direction, one.level) == key)


def law(one: Formula) -> sp.Expr:
    """How a formula grows, without constants: one head, N queries and keys, d = dv, no mask.

    L2 holds what v2 comes back to (R = 1) and nothing of what the others do (miss = 1).

    What is left are the monomials that no other one bounds where 1 <= d <= M <= N*d and Br, Bc <= N, which is
    where Theorem 2 of the v1 paper holds: N**2*d**2/M for v1 beside N*d + N**2 for standard attention.
    """
    one_head = dict.fromkeys((B, Hq, Hk, f, R, miss, bytes_), 1)
    total = one.bytes.subs(one_head | {Nq: N, Nk: N, dv: d, dp: d, Tr: N / Br, Tc: N / Bc})
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
