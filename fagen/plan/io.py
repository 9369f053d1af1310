"""The IO model in numbers: what the formulas say for one shape, kernel and chip, and what L2 absorbs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any

import sympy as sp

from fagen.hw.dtypes import DTYPES
from fagen.plan.blocks import Blocks, Window
from fagen.plan.formulas import STATISTIC, V1_BLOCKS, B, Formula, Hk, Hq, M, Nk, Nq, R, Tc, Tr, f
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape, launch, queries_per_tile
from fagen.plan.symbols import Bc, Br, bytes_, d, dv


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
    window: Window  # the mask: see blocks.py
    tile_q: int  # queries of a CTA's Q tile, in v2's loop order
    tile_kv: int  # keys of its K/V tile
    smem_bytes: int  # shared memory that one CTA may have
    l2_bytes: int
    ctas: int  # CTAs that run at a time: SMs * CTAs per SM
    heads_abreast: int  # (batch, query head or heads of one tile) pairs that the forward runs side by side
    heads_per_tile: int = 1  # query heads of one K/V head that share a Q tile
    longest_first: bool = False  # the shortest quarter of all pairs' Q tiles goes last
    cluster: int = 1  # CTAs of neighbouring Q tiles that load K and V together

    @property
    def heads_per_kv(self) -> int:
        """Query heads that share a K/V head."""
        return self.heads_q // self.heads_kv


def setting(plan: Plan, shape: Shape) -> Setting:
    """The setting of a plan's kernel and device on a shape."""
    problem = plan.spec.problem
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
        tile_kv=plan.tiling.kv,
        smem_bytes=plan.arch.smem_per_cta,
        l2_bytes=plan.device.l2_bytes,
        ctas=plan.device.sms * plan.tiling.ctas_per_sm,
        heads_abreast=launch(plan, shape, scale=1.0).scalars.heads_abreast,
        heads_per_tile=group if plan.tiling.pack_gqa else 1,
        longest_first=plan.tiling.longest_first,
        cluster=plan.tiling.cluster,
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
        bytes_: s.element_bytes,
        Tr: sp.Rational(blocks.along_q, s.heads_per_tile * s.cluster),
        Tc: blocks.along_kv,
        f: sp.Rational(share),
        R: sp.Rational(reads_from_hbm(one.direction, share, s)),
    }


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
        groups = _blocks(s.ctas, max(s.heads_abreast * blocks, 1))
        pairs = min(groups * s.heads_abreast, s.batch * s.heads_q // s.heads_per_tile)
        sharing = s.heads_per_kv // s.heads_per_tile  # pairs of one K/V head
        in_flight = _blocks(pairs, sharing)
        ctas_per_head = sharing * blocks
    else:
        operands = s.heads_per_kv * s.seqlen_q * (row + 4 * s.head_dim + 2 * STATISTIC)
        ctas_per_head = _blocks(s.seqlen_k, s.tile_kv)
        in_flight = min(_blocks(s.ctas, max(ctas_per_head, 1)), s.batch * s.heads_kv)
    if in_flight * operands <= s.l2_bytes:
        again = _read_last(s, operands) if direction == "forward" else Fraction(0)
        return 1 + again + _cut_pairs(direction, in_flight * operands, ctas_per_head, s)
    waves = _blocks(ctas_per_head, _blocks(s.ctas, in_flight))
    return max(Fraction(1), share * waves)


def _read_last(s: Setting, operands: int) -> Fraction:
    """Share of a head's K and V that longest-first order comes back to after all other heads.

    The shortest quarter of a head's Q tiles goes last. What it sees has left L2 by then, unless K and V of
    all heads, `operands` bytes each, fit. A head's last tiles run side by side, so it is read once.
    """
    rows = s.tile_q * s.cluster
    shortest = _blocks(s.seqlen_q, rows) // 4 * rows
    if not (s.longest_first and shortest and operands) or s.batch * s.heads_kv * operands <= s.l2_bytes:
        return Fraction(0)
    last = Blocks(s.seqlen_q, s.seqlen_k, shortest, s.tile_kv, s.window)
    return Fraction(last.of(0), last.along_kv)


def _cut_pairs(direction: str, in_flight_bytes: int, ctas_per_head: int, s: Setting) -> Fraction:
    """Share of the K/V heads that two waves of CTAs read, each from HBM.

    Without a mask the CTAs of a wave take equally long and walk side by side, so a head whose CTAs are cut by
    a wave's end is walked once more from its first tile, the one longest unused. It is gone if the wave moved
    more than half of L2 holds: either half of L2 keeps its own copy of what the SMs of both read. (Measured
    on an H200: docs/performance.md.)
    """
    row = (s.head_dim + s.head_dim_v) * s.element_bytes
    moved = in_flight_bytes + s.ctas * s.tile_q * s.heads_per_tile * row
    masked = s.window != (None, None)
    if direction != "forward" or masked or not ctas_per_head or moved <= s.l2_bytes / 2:
        return Fraction(0)
    heads = s.batch * s.heads_kv
    ends = _blocks(heads * ctas_per_head, s.ctas) - 1  # of waves, but the last
    period = ctas_per_head // gcd(ctas_per_head, s.ctas)  # every so many waves end where a head does
    return Fraction(ends - ends // period, heads)


def _blocks(rows: int, tile: int) -> int:
    return -(-rows // tile)
