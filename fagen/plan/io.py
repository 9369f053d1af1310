"""The IO model in numbers: what the formulas say for one shape, kernel and chip, and what L2 absorbs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import exp, gcd
from typing import Any

import sympy as sp

from fagen.hw.dtypes import DTYPES
from fagen.plan import l2_walk
from fagen.plan.backward_launch import launches
from fagen.plan.blocks import Blocks, Window
from fagen.plan.formulas import (
    ACCUMULATOR,
    STATISTIC,
    V1_BLOCKS,
    B,
    Formula,
    Hk,
    Hq,
    M,
    Nk,
    Nq,
    R,
    Tc,
    Tr,
    dp,
    f,
    miss,
)
from fagen.plan.ir import Plan
from fagen.plan.kernels import kernels
from fagen.plan.l2_walk import Walk
from fagen.plan.launch import Launch, Shape, queries_per_tile
from fagen.plan.symbols import Bc, Br, bytes_, d, dv
from fagen.plan.v2 import pad16


@dataclass(frozen=True)
class Setting:
    """The numbers that the formulas are evaluated for: a shape, a kernel's tile, and the chip."""

    batch: int
    seqlen_q: int
    seqlen_k: int
    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int
    element_bytes: int
    window: Window  # the mask: see blocks.py
    tile_q: int  # queries of a CTA's Q tile; on paper v1 has the blocks of its paper
    tile_kv: int  # keys of its K/V tile
    smem_bytes: int  # shared memory that one CTA may have
    l2_bytes: int
    ctas: int  # CTAs that run at a time: SMs * CTAs per SM
    heads_abreast: (
        int  # pairs that v2 runs side by side: (batch, query head or heads of one tile), or, in the
    )
    # backward, (batch, K/V head)
    dq_columns: int  # of v2's dQ sum: head_dim padded
    heads_per_tile: int = 1  # query heads of one K/V head that share a Q tile
    longest_first: bool = False  # the shortest quarter of all pairs' tiles goes last
    cluster: int = 1  # CTAs of neighbouring Q tiles that load K and V together

    @property
    def heads_per_kv(self) -> int:
        """Query heads that share a K/V head."""
        return self.heads_q // self.heads_kv


def setting(plan: Plan, shape: Shape) -> Setting:
    """The setting of a plan's kernel and device on a shape."""
    problem, tiling = plan.spec.problem, plan.tiling
    group = shape.heads_q // shape.heads_kv
    return Setting(
        batch=shape.batch,
        seqlen_q=shape.seqlen_q,
        seqlen_k=shape.seqlen_k,
        heads_q=shape.heads_q,
        heads_kv=shape.heads_kv,
        head_dim=problem.head_dim,
        head_dim_v=problem.dim_v,
        element_bytes=DTYPES[problem.dtype].bytes,
        window=problem.window,
        tile_q=queries_per_tile(plan, group),
        tile_kv=tiling.kv,
        smem_bytes=plan.arch.smem_per_cta,
        l2_bytes=plan.device.l2_bytes,
        ctas=plan.device.sms * tiling.ctas_per_sm,
        heads_abreast=main_launch(plan, shape).scalars.heads_abreast,
        dq_columns=plan.dim if plan.direction == "backward" else pad16(problem.head_dim),
        heads_per_tile=group if tiling.pack_gqa else 1,
        longest_first=tiling.longest_first,
        cluster=tiling.cluster,
    )


def algorithm(plan: Plan) -> str:
    """Whose formulas a plan's kernels have: later generations keep v2's order of loops."""
    return "v1" if plan.spec.family == "v1" else "v2"


def main_launch(plan: Plan, shape: Shape) -> Launch:
    """The launch of the kernel that multiplies, with softmax scale 1."""
    own = zip(kernels(plan), launches(plan, shape, scale=1.0), strict=True)
    return next(launched for kernel, launched in own if kernel.name == plan.direction)


def evaluate(one: Formula, at: Setting) -> int:
    """Bytes of a formula in a setting, rounded down to a whole byte."""
    return int(sp.floor(one.bytes.subs(values(one, at))))


def values(one: Formula, s: Setting) -> dict[sp.Basic | complex, Any]:
    """Every symbol of a formula."""
    tile_q, tile_kv = _tile(one, s)
    blocks = Blocks(s.seqlen_q, s.seqlen_k, tile_q, tile_kv, s.window)
    share = Fraction(1)
    if s.seqlen_q and s.seqlen_k:
        if (one.algorithm, one.direction) == ("v2", "forward"):  # Q blocks outside
            share = Fraction(blocks.keys_read, blocks.along_q * s.seqlen_k)
        else:
            share = Fraction(blocks.queries_read, blocks.along_kv * s.seqlen_q)
    return {
        B: s.batch,
        Hq: s.heads_q,
        Hk: s.heads_kv,
        Nq: s.seqlen_q,
        Nk: s.seqlen_k,
        d: s.head_dim,
        dv: s.head_dim_v,
        dp: s.dq_columns,
        bytes_: s.element_bytes,
        Tr: sp.Rational(blocks.along_q, s.heads_per_tile * s.cluster),
        Tc: blocks.along_kv,
        f: sp.Rational(share),
        R: sp.Rational(reads_from_hbm(one.direction, share, s)),
        miss: sp.Float(missed(one, s)),
    }


def _tile(one: Formula, s: Setting) -> tuple[int, int]:
    """Rows of a Q block and of a K/V block: the kernel's, or those that v1's paper makes of M."""
    if (one.algorithm, one.level) != ("v1", "paper"):
        return s.tile_q, s.tile_kv
    elements = {M: s.smem_bytes // s.element_bytes, d: s.head_dim, dv: s.head_dim_v}
    tile_q, tile_kv = (int(V1_BLOCKS[symbol].subs(elements)) for symbol in (Br, Bc))
    return tile_q, tile_kv


def missed(one: Formula, s: Setting) -> float:
    """Share of what an algorithm comes back to that L2 no longer holds (miss), 0 to 1.

    Between two uses of a line pass, through L2: of standard attention two score matrices of all heads; of v1
    what all CTAs that run at a time go over at one K/V block; of v2's backward what prepare moves.
    """
    rows, q_row, v_row = s.heads_q * s.seqlen_q, s.head_dim * s.element_bytes, s.head_dim_v * s.element_bytes
    if one.algorithm == "standard":
        return lost(2 * s.batch * rows * s.seqlen_k * s.element_bytes / s.l2_bytes)
    if one.algorithm == "v2":
        return lost(s.batch * rows * (ACCUMULATOR * s.dq_columns + 2 * v_row) / s.l2_bytes)
    if one.direction == "forward":
        row, ctas = q_row + ACCUMULATOR * s.head_dim_v + 2 * STATISTIC, s.batch * s.heads_q  # Q, O, l, m
    else:  # Q, O, dO, dQ, l, m
        row = s.heads_per_kv * (q_row + 2 * v_row + ACCUMULATOR * s.head_dim + 2 * STATISTIC)
        ctas = s.batch * s.heads_kv
    tile_q, tile_kv = _tile(one, s)
    walks = Blocks(s.seqlen_q, s.seqlen_k, tile_q, tile_kv, s.window).transposed
    visits = [walks.of(kv_block) * tile_q for kv_block in range(walks.along_q)]  # rows
    gone = [visited * lost(visited * row * min(s.ctas, ctas) / s.l2_bytes) for visited in visits]
    return sum(gone) / max(sum(visits), 1)


@cache
def lost(times: float) -> float:
    """Share of a cyclic walk over `times` what a cache holds that has left it when the walk comes back.

    A line that is brought in takes the place of any other: with a share g brought in at each walk, a line
    outlives a walk with probability exp(-g * times), so g = 1 - exp(-g * times), from above. A cache that
    always drops what is longest unused would lose all of it (g = 1) as soon as `times` exceeds 1.
    """
    if times <= 1:
        return 0.0
    gone, before = 1.0, 2.0
    while before - gone > 1e-6:
        gone, before = 1 - exp(-gone * times), gone
    return gone


def reads_from_hbm(direction: str, share: Fraction, s: Setting) -> Fraction:
    """Times that v2's inner-loop operands come from HBM (R).

    The inner-loop operands of one K/V head are its K and V in the forward, and Q, dO, LSE, D and the dQ sum
    of its query heads in the backward. If those of all K/V heads in flight fit L2 together, they are read
    once. If not, a cyclic walk through more than L2 holds finds nothing of the walk before, so each wave of
    CTAs reads them again, once for the whole wave, because its CTAs walk side by side. CTAs dealt longest
    first do not: see l2_walk.py; only sequences too long for it are taken to walk in waves as well.
    """
    if s.longest_first and (walk := _walk(direction, s).shortened()):
        return Fraction(l2_walk.reads(walk, s.l2_bytes)).limit_denominator(10**6)
    row = (s.head_dim + s.head_dim_v) * s.element_bytes
    if direction == "forward":
        operands = s.seqlen_k * row
        own = s.tile_q * s.heads_per_tile * row  # Q and O of a CTA
        blocks = _blocks(s.seqlen_q, s.tile_q)  # of one (batch, query head) pair
        sharing = s.heads_per_kv // s.heads_per_tile  # pairs of one K/V head
    else:
        operands = s.heads_per_kv * s.seqlen_q * (row + ACCUMULATOR * s.dq_columns + 2 * STATISTIC)
        own = 2 * s.tile_kv * row  # K, V, dK and dV of a CTA
        blocks = _blocks(s.seqlen_k, s.tile_kv)
        sharing = 1
    groups = _blocks(s.ctas, max(s.heads_abreast * blocks, 1))
    pairs = min(groups * s.heads_abreast, s.batch * s.heads_kv * sharing)
    in_flight = _blocks(pairs, sharing)
    ctas_per_head = sharing * blocks
    if in_flight * operands <= s.l2_bytes:
        moved = in_flight * operands + s.ctas * own
        return 1 + _cut_heads(moved, ctas_per_head, s)
    waves = _blocks(ctas_per_head, _blocks(s.ctas, in_flight))
    return max(Fraction(1), share * waves)


def _walk(direction: str, s: Setting) -> Walk:
    blocks = Blocks(s.seqlen_q, s.seqlen_k, s.tile_q * s.cluster, s.tile_kv, s.window)
    row = (s.head_dim + s.head_dim_v) * s.element_bytes
    if direction == "forward":
        return Walk(
            blocks=blocks,
            first_is_longest=False,
            pairs=s.batch * s.heads_q // s.heads_per_tile,
            abreast=s.heads_abreast,
            sharing=s.heads_per_kv // s.heads_per_tile,
            repeats=1,
            ctas=s.ctas // s.cluster,
            block_bytes=s.tile_kv * row,
            own_bytes=s.tile_q * s.cluster * s.heads_per_tile * row,  # Q and O
        )
    return Walk(
        blocks=blocks.transposed,
        first_is_longest=True,
        pairs=s.batch * s.heads_kv,
        abreast=s.heads_abreast,
        sharing=1,
        repeats=s.heads_per_kv,
        ctas=s.ctas,
        block_bytes=s.tile_q * (row + ACCUMULATOR * s.dq_columns + 2 * STATISTIC),
        own_bytes=2 * s.tile_kv * row,  # K, V, dK and dV
    )


def _cut_heads(moved: int, ctas_per_head: int, s: Setting) -> Fraction:
    """Share of the K/V heads that two waves of CTAs walk, each from HBM, where a wave moves so many bytes.

    Without a mask the CTAs of a wave take equally long and walk side by side, so a head whose CTAs are cut by
    a wave's end is walked once more from its first tile, the one longest unused. It is gone if the wave moved
    more than half of L2 holds: either half of L2 keeps its own copy of what the SMs of both read. (Measured
    on an H200: docs/performance.md.)
    """
    if s.window != (None, None) or not ctas_per_head or moved <= s.l2_bytes / 2:
        return Fraction(0)
    heads = s.batch * s.heads_kv
    ends = _blocks(heads * ctas_per_head, s.ctas) - 1  # of waves, but the last
    period = ctas_per_head // gcd(ctas_per_head, s.ctas)  # every so many waves end where a head does
    return Fraction(ends - ends // period, heads)


def _blocks(rows: int, tile: int) -> int:
    return -(-rows // tile)
