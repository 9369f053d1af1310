"""The plan: every number decided, before anything is printed.

`planner.plan` makes it from a spec; templates print it, `fagen plan` shows it, the tuner ranks it.
"""

from __future__ import annotations

from dataclasses import dataclass

from fagen.hw.arch import Arch
from fagen.hw.device import Device
from fagen.spec.model import Spec


@dataclass(frozen=True)
class Tiling:
    """The schedule with every key resolved."""

    q: int  # rows of Q per CTA (Br)
    kv: int  # rows of K, V per step (Bc)
    warps: int
    stages: int  # K/V tiles in the ring
    ctas_per_sm: int
    q_operand: str  # "shared" | "registers"
    lazy_rescale: float | None  # log2 growth of the row maximum left unapplied; None: rescale always
    scheduler: str  # "in_order" | "longest_first"

    @property
    def rows_per_warp(self) -> int:
        """Rows of Q that one warp owns."""
        return self.q // self.warps

    @property
    def threads(self) -> int:
        """Threads per CTA."""
        return 32 * self.warps


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

    name: str  # "q" | "k" | "v"
    offset: int  # bytes from the start of dynamic shared memory
    rows: int
    cols: int  # padded to a multiple of 16; of q the wider of Q and O, which is staged through it
    stages: int
    bytes: int  # of all stages


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
    """Everything a template prints and a launch needs, for one spec on one arch."""

    spec: Spec
    arch: Arch
    device: Device
    tiling: Tiling
    planned: tuple[str, ...]  # schedule keys that the planner chose
    dim: int  # head_dim padded to a multiple of 16
    dim_v: int  # head_dim_v padded to a multiple of 16
    buffers: tuple[Buffer, ...]
    accounts: tuple[Account, ...]
    engines: Engines

    @property
    def symbol(self) -> str:
        """The kernel's extern "C" name."""
        return f"fagen_{self.spec.name}_fwd"

    @property
    def barriers_offset(self) -> int:
        """Where the ring's mbarriers start: after the tiles."""
        return sum(buffer.bytes for buffer in self.buffers)

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory per CTA: the tiles, and a full and an empty mbarrier per stage."""
        return self.barriers_offset + 16 * self.tiling.stages
