"""The plan: every number decided, before anything is printed.

`planner.plan` makes it from a spec; templates print it, `fagen plan` shows it, the tuner ranks it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fagen.hw.arch import Arch
from fagen.hw.device import Device
from fagen.spec.model import Spec

E4M3_MAX = 448.0  # which an 8-bit P has whatever the inputs have


@dataclass(frozen=True)
class Tiling:
    """The schedule of a pass with every key resolved. What a family or pass has not is at its default.

    In the backward `stages` are those of Q and dO, and `warps` split K/V rows and Q rows.
    """

    q: int  # rows of Q per CTA (Br)
    kv: int  # rows of K, V per step (Bc)
    warps: int  # math warps
    stages: int  # K/V tiles in the ring
    ctas_per_sm: int
    q_operand: str  # "shared" | "registers"
    lazy_rescale: float | None  # log2 growth of the row maximum left unapplied; None: nothing is
    scheduler: str  # "in_order" | "longest_first" | "persistent" | "persistent_lpt"
    load_warps: int = 0  # warps that only load
    load_registers: int = 0  # of a thread of theirs; 0: no setmaxnreg
    math_registers: int = 0  # of a math thread; 0: no setmaxnreg
    pingpong: bool = False  # math warpgroups multiply in turns
    overlap: bool = False  # S of the next tile is begun before the softmax of this one
    q_stages: int = 1  # Q tiles in shared memory
    own_o: bool = False  # O leaves through a buffer of its own
    growth: float | None = None  # log2 of a tile's row sum up to which no maximum is sought; None: always
    polynomial: float = 0.0  # share of the exponentials off the exp2 unit
    cluster: int = 1  # CTAs that load each K and V tile together
    pack_gqa: bool = False  # the query heads of one K/V head share a Q tile
    warps_q: int = 0  # backward: of the warps, those along the rows of Q, of S and dP
    warps_dq: int = 0  # backward: of the warps, those along the rows of dQ
    ds_stages: int = 1  # backward: P tiles, and dS tiles, in shared memory
    softcap: bool = False  # problem.softcap is a number
    is_fp8: bool = False  # Q, K, V and P have 8 bits
    head_descales: bool = False  # one for each of Q, K and V of a work item, which the load role fetches
    transposers: int = 0  # of the load warps, those that transpose 8-bit V
    promote_every: int | None = None  # 8-bit: keys after which O is added to sums in fp32; None: never
    dropout: bool = False  # problem.dropout

    @property
    def rows_per_warp(self) -> int:
        """Rows of Q that one warp owns."""
        return self.q // self.warps

    @property
    def warps_kv(self) -> int:
        """Backward: warps along the rows of K and V."""
        return self.warps // self.warps_q

    @property
    def rescales(self) -> bool:
        """Whether every tile moves O to its rows' maxima."""
        return self.lazy_rescale is None and self.growth is None

    @property
    def p_offset(self) -> int:
        """P is rounded as 2^p_offset times what it is, so that its growth has room in 8 bits, no more."""
        growth = self.growth or self.lazy_rescale or 0
        return math.floor(math.log2(E4M3_MAX) - growth) if self.is_fp8 else 0

    @property
    def p_limit(self) -> float | None:
        """With growth: the sum of a lane's part of a row of P above which references move."""
        if self.growth is None:
            return None
        return E4M3_MAX if self.is_fp8 else 2.0**self.growth

    @property
    def longest_first(self) -> bool:
        """Whether work items are in the order of sched/longest_first.cuh."""
        return self.scheduler in ("longest_first", "persistent_lpt")

    @property
    def has_counters(self) -> bool:
        """Whether work items are handed out by counters in global memory."""
        return self.scheduler == "persistent_lpt"

    @property
    def releases_k_early(self) -> bool:
        """v3: whether the next K may come before the softmax. Faster in 8 bits with turns alone."""
        return self.is_fp8 and self.pingpong and self.overlap

    @property
    def threads(self) -> int:
        """Threads per CTA."""
        return 32 * (self.load_warps + self.warps)


@dataclass(frozen=True)
class Term:
    """One named part of a budget: its formula over the plan's symbols, and its value."""

    name: str  # "K ring"
    formula: str  # "Bc*d*bytes*stages", printed from the sympy expression
    value: int


@dataclass(frozen=True)
class Account:
    """What one resource is asked for, term by term, against what the chip allows."""

    resource: str  # a name from budget.py: "shared memory per CTA", "registers per thread", ...
    unit: str  # "bytes" | "registers" | "threads"
    terms: tuple[Term, ...]
    allowed: int

    @property
    def used(self) -> int:
        """Sum of the terms."""
        return sum(term.value for term in self.terms)

    @property
    def fits(self) -> bool:
        """Whether the chip allows it."""
        return self.used <= self.allowed


@dataclass(frozen=True)
class Buffer:
    """A tile in shared memory: `stages` copies of rows x cols elements, from byte `offset` on."""

    name: str  # "q" | "k" | "v" | "o"
    offset: int  # bytes from the start of dynamic shared memory
    rows: int
    cols: int  # padded; of a q that O is staged through the wider of Q and O
    stages: int
    bytes: int  # of all stages


@dataclass(frozen=True)
class Barrier:
    """`stages` words of 8 bytes, one for each stage of a buffer: mbarriers, or what goes with them."""

    name: str  # "k_full"
    stages: int
    meaning: str  # what a complete phase says, or what the word holds


@dataclass(frozen=True)
class EngineLoad:
    """Cycles that one engine of an SM needs for one Br x Bc tile."""

    engine: str  # "tensor core" | "MUFU" | "FMA" | "shared memory" | "L2" | "HBM"
    cycles: float
    work: str  # "2*Bc*Br*(d + dv) FLOP at 2440 per clock"


@dataclass(frozen=True)
class Engines:
    """Feeds and speeds of one tile; the largest load is the bound."""

    loads: tuple[EngineLoad, ...]
    tile_flops: int
    tflops: float  # predicted for a full device, non-causal, from the model in engines.py

    @property
    def bound(self) -> EngineLoad:
        """The engine that takes longest."""
        return max(self.loads, key=lambda load: load.cycles)


@dataclass(frozen=True)
class Plan:
    """Everything the templates print and the launches need, for one pass of a spec on one arch."""

    spec: Spec
    direction: str  # "forward" | "backward"
    arch: Arch
    device: Device
    tiling: Tiling
    planned: tuple[str, ...]  # schedule keys that the planner chose
    dim: int  # head_dim padded to what the family multiplies at a time
    dim_v: int  # head_dim_v, likewise
    buffers: tuple[Buffer, ...]  # of the kernel that multiplies
    barriers: tuple[Barrier, ...]  # side by side, in this order
    accounts: tuple[Account, ...]
    engines: Engines
