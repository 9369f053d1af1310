"""Who works in a CTA of the kernel that multiplies, and how tiles pass between them and global memory.

The order of steps is the template's; this says which roles there are, what each buffer is between, and what
tells those who wait that it is full or empty: `v1_pipeline.py`, `v2_pipeline.py`, `v3_pipeline.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

LOAD, EXCHANGE, STORE = "load", "exchange", "store"
CTA_BARRIER, WARP_BARRIER = "barrier of the CTA", "barrier of a warp"


@dataclass(frozen=True)
class Role:
    """Warps that do the same work."""

    name: str  # "load", "math 0"
    warps: int
    registers: int  # of a thread: what setmaxnreg gives it; without, what it may have at most
    does: str


@dataclass(frozen=True)
class Signal:
    """What completes when all who have to have arrived."""

    name: str  # an mbarrier of the plan, one for each stage, or another barrier
    arrivals: int  # of threads; of an mbarrier the count that it is initialised with
    bytes: int = 0  # of TMA, which it waits for as well


@dataclass(frozen=True)
class Passage:
    """Buffers that are filled and emptied together."""

    buffers: tuple[str, ...]  # names of Plan.buffers
    way: str  # LOAD: from global memory to math; EXCHANGE: among math warps; STORE: to global memory
    by: str  # "TMA", "cp.async", "st.shared"
    full: Signal
    empty: Signal | None  # None: filled once
    beside: tuple[str, ...] = ()  # words of Plan.barriers that are no barriers
    then: str = ""  # what else passes through the same place


@dataclass(frozen=True)
class Pipeline:
    """The roles of a CTA and what is between them."""

    load: Role  # where every warp loads, the only math role
    math: tuple[Role, ...]
    passages: tuple[Passage, ...]
    turns: tuple[Signal, ...] = ()  # what each math role waits for before it multiplies: ping-pong

    @property
    def roles(self) -> tuple[Role, ...]:
        """Each once, the one that loads first."""
        return (self.load, *(role for role in self.math if role != self.load))
