"""The IO model: bytes that attention moves, as sympy formulas and as numbers for one setting.

Three algorithms, forward and backward: standard attention (S and P materialised), v1's loop order (K/V blocks
outside, Q blocks inside) and the loop order of v2 to v4 (the forward goes over Q blocks outside, the backward
over K/V blocks). Sources: FlashAttention (arXiv 2205.14135) Algorithms 0, 1, 3, 4 and Theorem 2;
FlashAttention-2 (arXiv 2307.08691) Algorithms 1 and 2.

Each formula says at which level it counts:

- "HBM": bytes that cross the memory bus. For standard and v1 this is the papers' machine, which has no cache
  between HBM and shared memory; for v2 it is what is left after L2 (see `reads_from_hbm`).
- "L2": bytes that the SMs ask of L2, whether L2 holds them or not.

docs/io_model.md derives the formulas and states the assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any

import sympy as sp

from fagen.hw.dtypes import DTYPES
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape, launch
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
    Tr: "Q blocks, ceil(Nq/Br)",
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


@dataclass(frozen=True)
class Setting:
    """The numbers that the formulas are evaluated for: a shape, the kernel's tile, and the chip."""

    batch: int
    seqlen_q: int
    seqlen_k: int
    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int
    element_bytes: int
    causal: bool  # bottom-right: query i sees key j <= i + seqlen_k - seqlen_q
    tile_q: int  # the v2 kernel's Br
    tile_kv: int  # the v2 kernel's Bc
    smem_bytes: int  # shared memory that one CTA may have
    l2_bytes: int
    ctas: int  # CTAs that run at a time: SMs * CTAs per SM
    heads_in_l2: int  # (batch, query head) pairs that the v2 forward runs side by side

    @property
    def heads_per_kv(self) -> int:
        """Query heads that share a K/V head."""
        return self.heads_q // self.heads_kv


def setting(plan: Plan, shape: Shape) -> Setting:
    """The setting of a plan's kernel and device on a shape."""
    problem = plan.spec.problem
    return Setting(
        batch=shape.batch,
        seqlen_q=shape.seqlen_q,
        seqlen_k=shape.seqlen_k,
        heads_q=shape.heads_q,
        heads_kv=shape.heads_kv,
        head_dim=problem.head_dim,
        head_dim_v=problem.dim_v,
        element_bytes=DTYPES[problem.dtype].bytes,
        causal=problem.mask == "causal",
        tile_q=plan.tiling.q,
        tile_kv=plan.tiling.kv,
        smem_bytes=plan.arch.smem_per_cta,
        l2_bytes=plan.device.l2_bytes,
        ctas=plan.device.sms * plan.tiling.ctas_per_sm,
        heads_in_l2=launch(plan, shape, scale=1.0).scalars.heads_in_l2,
    )


def evaluate(one: Formula, at: Setting) -> int:
    """Bytes of a formula in a setting, rounded down to a whole byte."""
    return int(sp.floor(one.bytes.subs(values(one, at))))


def values(one: Formula, s: Setting) -> dict[sp.Basic | complex, Any]:
    """Every symbol of a formula; v1's blocks follow from M, v2's are the kernel's."""
    if one.algorithm == "v1":
        elements = {M: s.smem_bytes // s.element_bytes, d: s.head_dim, dv: s.head_dim_v}
        tile_q, tile_kv = (int(V1_BLOCKS[symbol].subs(elements)) for symbol in (Br, Bc))
    else:
        tile_q, tile_kv = s.tile_q, s.tile_kv
    q_outside = (one.algorithm, one.direction) == ("v2", "forward")
    visited = visited_by_q_blocks if q_outside else visited_by_kv_blocks
    share = visited(s.seqlen_q, s.seqlen_k, tile_q, tile_kv) if s.causal else Fraction(1)
    return {
        B: s.batch,
        Hq: s.heads_q,
        Hk: s.heads_kv,
        Nq: s.seqlen_q,
        Nk: s.seqlen_k,
        d: s.head_dim,
        dv: s.head_dim_v,
        bytes_: s.element_bytes,
        Tr: _blocks(s.seqlen_q, tile_q),
        Tc: _blocks(s.seqlen_k, tile_kv),
        f: sp.Rational(share),
        R: sp.Rational(reads_from_hbm(one.direction, share, s)),
    }


def _blocks(rows: int, tile: int) -> int:
    return -(-rows // tile)


def visited_by_q_blocks(seqlen_q: int, seqlen_k: int, tile_q: int, tile_kv: int) -> Fraction:
    """Share of Tr*Nk keys that Q blocks visit under a causal mask, each up to its last row's diagonal."""
    offset = seqlen_k - seqlen_q
    ends = [min((i + 1) * tile_q, seqlen_q) + offset for i in range(_blocks(seqlen_q, tile_q))]
    keys = sum(min(_blocks(max(end, 0), tile_kv) * tile_kv, seqlen_k) for end in ends)
    return _share(keys, len(ends) * seqlen_k)


def visited_by_kv_blocks(seqlen_q: int, seqlen_k: int, tile_q: int, tile_kv: int) -> Fraction:
    """Share of Tc*Nq queries that K/V blocks visit under a causal mask, each from the first that sees it."""
    offset = seqlen_k - seqlen_q
    starts = [max(j * tile_kv - offset, 0) for j in range(_blocks(seqlen_k, tile_kv))]
    queries = sum(max(seqlen_q - start // tile_q * tile_q, 0) for start in starts)
    return _share(queries, len(starts) * seqlen_q)


def _share(part: int, whole: int) -> Fraction:
    return Fraction(part, whole) if whole else Fraction(1)


def reads_from_hbm(direction: str, share: Fraction, s: Setting) -> Fraction:
    """Times that v2's inner-loop operands come from HBM (R).

    The inner-loop operands of one K/V head are its K and V in the forward, and Q, dO, LSE, D and the dQ
    accumulator of its query heads in the backward. If those of all K/V heads in flight fit L2 together, they
    are read once. If not, a cyclic walk through more than L2 holds finds nothing of the walk before, so each
    wave of CTAs reads them again, once for the whole wave, because its CTAs walk side by side.
    """
    row = (s.head_dim + s.head_dim_v) * s.element_bytes
    if direction == "forward":
        operands = s.seqlen_k * row
        blocks = _blocks(s.seqlen_q, s.tile_q)  # of one (batch, query head) pair
        groups = _blocks(s.ctas, max(s.heads_in_l2 * blocks, 1))
        pairs = min(groups * s.heads_in_l2, s.batch * s.heads_q)
        in_flight = _blocks(pairs, s.heads_per_kv)
        ctas_per_head = s.heads_per_kv * blocks
    else:
        operands = s.heads_per_kv * s.seqlen_q * (row + 4 * s.head_dim + 2 * STATISTIC)
        ctas_per_head = _blocks(s.seqlen_k, s.tile_kv)
        in_flight = min(_blocks(s.ctas, max(ctas_per_head, 1)), s.batch * s.heads_kv)
    if in_flight * operands <= s.l2_bytes:
        return 1 + _cut_pairs(direction, in_flight * operands, ctas_per_head, s)
    waves = _blocks(ctas_per_head, _blocks(s.ctas, in_flight))
    return max(Fraction(1), share * waves)


def _cut_pairs(direction: str, in_flight_bytes: int, ctas_per_head: int, s: Setting) -> Fraction:
    """Share of the K/V heads that two waves of CTAs read, each from HBM.

    Without a mask the CTAs of a wave take equally long and walk side by side, so a head whose CTAs are cut by
    a wave's end is walked once more from its first tile, the one longest unused. It is gone if the wave moved
    more than half of L2 holds: either half of L2 keeps its own copy of what the SMs of both read. (Measured
    on an H200: docs/performance.md.)
    """
    row = (s.head_dim + s.head_dim_v) * s.element_bytes
    if direction != "forward" or s.causal or in_flight_bytes + s.ctas * s.tile_q * row <= s.l2_bytes / 2:
        return Fraction(0)
    heads = s.batch * s.heads_kv
    ends = _blocks(heads * ctas_per_head, s.ctas) - 1  # of waves, but the last
    period = ctas_per_head // gcd(ctas_per_head, s.ctas)  # every so many waves end where a head does
    return Fraction(ends - ends // period, heads)
