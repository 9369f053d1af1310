"""The v3 kernel on one SM as a small discrete-event run: who does what when, and what it waits for.

There is one mechanism: an engine serves one job at a time, in the order of the requests. A role asks for
jobs, and waits for their ends or for signals (a ring's full and empty barriers, a turn). The roles and the
order of their steps are those of templates/v3/forward.cu.j2: one role loads, each math role has 64 rows of Q.

FLOP and bytes of the jobs are counted, and instructions as listed below; the rest is in `timeline_kernel.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from fagen.plan.engines import FMA, HBM, L2, MUFU, SOFTCAP_MUFU, SOFTCAP_OPERATIONS, TENSOR
from fagen.plan.timeline_kernel import ROWS, Kernel

ENGINES = (TENSOR, MUFU, FMA, L2, HBM)
LOAD = "load"
STALL = "stall"

SLICES = 4  # parts of a warpgroup's softmax, between which other warpgroups get an engine
# Instructions of a thread, per score of its tile ...
SOFTMAX_OPERATIONS = 5.25  # counted by Nsight Compute: scale, exp2, sum, conversion, and what goes with them
MAXIMUM_OPERATIONS = 2  # a comparison at half rate
MASK_OPERATIONS = 2  # compare, select
POLYNOMIAL_OPERATIONS = 14  # for an exponential: ten instructions (attn/exp2.cuh), four of them at half rate
# ... and per element of O, until it is normalised, converted and stored in `costs.store`.
RESCALE_OPERATIONS = 1


@dataclass(frozen=True)
class Event:
    """A span of a role, or of an engine at work for it; times in cycles."""

    role: str  # "load", "math 0", ...
    engine: str | None  # None: what the role itself does, or waits for
    what: str  # "Q", "K", "V" (loads), "S", "softmax", "PV", "O" (rescale, normalise, store), or "stall"
    tile: int  # K/V tile, counted over work items
    start: float
    end: float


class _Signal:
    """Something that happens once, when all who have to have arrived, and that roles wait for."""

    def __init__(self, arrivals: int = 1) -> None:
        self.missing = arrivals
        self.time = 0.0  # of the latest arrival
        self.waiting: list[_Role] = []


_Role = Generator["_Signal | float"]  # yields the signal or the time that it waits for
_Issue = Generator["_Signal | float", None, float]  # the same, and returns when the product will be there


def run(
    kernel: Kernel, tiles: int, items: int, recorded: bool
) -> tuple[tuple[Event, ...], tuple[float, ...], tuple[float, ...]]:
    """Events, ends of the work items, and cycles that each of ENGINES works."""
    one = _Run(kernel, tiles, recorded)
    if kernel.persistent:
        one.cta(range(items))
    else:
        for item in range(items):
            one.now += kernel.costs.cta
            one.cta(range(item, item + 1))
    ends = tuple(one.item_ends[item].time for item in range(items))
    return tuple(one.events), ends, tuple(one.busy.values())


class _Run:
    """The clock, the engines and the barriers of one SM. K/V tiles are counted over work items."""

    def __init__(self, kernel: Kernel, tiles: int, recorded: bool) -> None:
        self.kernel = kernel
        self.tiles = tiles  # of each work item
        self.recorded = recorded  # whether events are kept
        self.busy: dict[str, float] = {engine: 0.0 for engine in ENGINES}
        self.now = 0.0
        self.events: list[Event] = []
        # When an engine is through with all that it was asked for.
        self.free: dict[str, float] = {engine: 0.0 for engine in ENGINES}
        self.queue: list[tuple[float, int, _Role]] = []
        self.order = count()
        self.q_full, self.k_full, self.v_full, self.turns = (defaultdict(_Signal) for _ in range(4))
        self.q_empty, self.k_empty, self.v_empty, self.item_ends = (
            defaultdict(lambda: _Signal(kernel.warpgroups)) for _ in range(4)
        )
        for before in range(-max(kernel.q_stages, kernel.stages), 0):  # the rings are empty at first
            self.q_empty[before] = self.k_empty[before] = self.v_empty[before] = _Signal(0)

    def cta(self, items: range) -> None:
        """A CTA starts now and works on these items, one after another, to the end of the last."""
        self.resume(self.load(items), self.now)
        for warpgroup in range(self.kernel.warpgroups):
            self.resume(self.math(warpgroup, items), self.now)
        while self.queue:
            self.now, _, role = heappop(self.queue)
            awaited = next(role, None)
            if not isinstance(awaited, _Signal):
                if awaited is not None:
                    self.resume(role, awaited)
            elif awaited.missing:
                awaited.waiting.append(role)
            else:
                self.resume(role, awaited.time)

    def resume(self, role: _Role, time: float) -> None:
        heappush(self.queue, (max(self.now, time), next(self.order), role))

    def arrive(self, signal: _Signal, time: float) -> None:
        signal.missing -= 1
        signal.time = max(signal.time, time)
        if not signal.missing:
            for role in signal.waiting:
                self.resume(role, signal.time)

    def use(self, role: str, engine: str, what: str, tile: int, cycles: float) -> float:
        """Asks an engine for a job; returns its end."""
        start = max(self.now, self.free[engine])
        self.free[engine] = start + cycles
        self.busy[engine] += cycles
        if self.recorded:
            self.events.append(Event(role, engine, what, tile, start, start + cycles))
        return start + cycles

    def wait(self, role: str, what: str, tile: int, awaited: _Signal | float) -> _Role:
        start = self.now
        yield awaited
        if self.recorded and self.now > start:
            self.events.append(Event(role, None, what, tile, start, self.now))

    def load(self, items: range) -> _Role:
        """The load role. K is fetched one tile ahead of V, as it is used, Q after the last V before it."""
        tiles = self.tiles_of(items)
        for tile in tiles:
            yield from self.load_kv("K", tile)
            if tile > tiles[0]:
                yield from self.load_kv("V", tile - 1)
            if self.starts_item(tile):
                yield from self.load_q(tile // self.tiles)
        yield from self.load_kv("V", tiles[-1])

    def load_q(self, item: int) -> _Role:
        k = self.kernel
        size = k.warpgroups * ROWS * k.dim * k.element_bytes
        empty, full = self.q_empty[item - k.q_stages], self.q_full[item]
        yield from self.fetch("Q", item * self.tiles, HBM, size / k.hbm_bytes, empty, full)

    def load_kv(self, what: str, tile: int) -> _Role:
        k = self.kernel
        empty, full, columns, is_split = {
            "K": (self.k_empty, self.k_full, k.dim, k.split_k),
            "V": (self.v_empty, self.v_full, k.dim_v, k.split_v),
        }[what]
        row = max(columns * k.element_bytes / k.l2_bytes, is_split * k.costs.split_row)
        cycles = k.kv / k.cluster * row
        yield from self.fetch(what, tile, L2, cycles, empty[tile - k.stages], full[tile])

    def fetch(self, what: str, tile: int, source: str, cycles: float, empty: _Signal, full: _Signal) -> _Role:
        yield from self.wait(LOAD, STALL, tile, empty)
        end = self.use(LOAD, source, what, tile, cycles)
        self.arrive(full, end + self.kernel.costs.load_latency)

    def math(self, warpgroup: int, items: range) -> _Role:
        """A math role: the stream of K/V tiles without a break between work items."""
        role, turns = f"math {warpgroup}", count(warpgroup, self.kernel.warpgroups)
        tiles = self.tiles_of(items)
        step = self.overlapped if self.kernel.overlap else self.in_sequence
        yield from self.wait(role, STALL, tiles[0], self.q_full[items[0]])
        yield from self.await_s(role, tiles[0], (yield from self.issue_s(role, tiles[0])))
        yield from self.softmax(warpgroup, tiles[0])
        for tile in tiles[1:]:
            if self.starts_item(tile):
                self.release_q(tile - 1)
                yield from self.wait(role, "O", tile - 1, self.now + self.kernel.costs.item)
                yield from self.wait(role, STALL, tile, self.q_full[tile // self.tiles])
            turn = items.start, next(turns)
            yield from self.take_turn(role, tile, turn)
            yield from step(warpgroup, tile, turn)
        self.release_q(tiles[-1])
        turn = items.start, next(turns)
        yield from self.take_turn(role, tiles[-1], turn)
        values = yield from self.issue_pv(role, tiles[-1])
        self.pass_turn(turn)
        yield from self.await_pv(role, tiles[-1], values)
        yield from self.store(role, tiles[-1])

    def overlapped(self, warpgroup: int, tile: int, turn: tuple[int, int]) -> _Role:
        """S of this tile is begun before P V of the one before, and its softmax runs meanwhile."""
        role = f"math {warpgroup}"
        scores = yield from self.issue_s(role, tile)
        values = yield from self.issue_pv(role, tile - 1)
        self.pass_turn(turn)
        yield from self.await_s(role, tile, scores)
        yield from self.softmax(warpgroup, tile)
        yield from self.await_pv(role, tile - 1, values + self.kernel.costs.drain)
        if self.starts_item(tile):
            yield from self.store(role, tile - 1)
        else:
            yield from self.rescale(warpgroup, tile)

    def in_sequence(self, warpgroup: int, tile: int, turn: tuple[int, int]) -> _Role:
        """P V of the tile before, S of this one, its softmax."""
        role = f"math {warpgroup}"
        yield from self.await_pv(role, tile - 1, (yield from self.issue_pv(role, tile - 1)))
        scores = yield from self.issue_s(role, tile)
        if self.starts_item(tile):
            yield from self.store(role, tile - 1)
        yield from self.wait(role, "S", tile, scores)
        self.pass_turn(turn)
        yield from self.await_s(role, tile, scores)
        yield from self.softmax(warpgroup, tile)
        if not self.starts_item(tile):
            yield from self.rescale(warpgroup, tile)

    def tiles_of(self, items: range) -> range:
        return range(items.start * self.tiles, items.stop * self.tiles)

    def starts_item(self, tile: int) -> bool:
        return tile % self.tiles == 0

    def release_q(self, tile: int) -> None:
        self.arrive(self.q_empty[tile // self.tiles], self.now)

    def take_turn(self, role: str, tile: int, turn: tuple[int, int]) -> _Role:
        if self.kernel.pingpong and turn[1]:
            yield from self.wait(role, STALL, tile, self.turns[turn])

    def pass_turn(self, turn: tuple[int, int]) -> None:
        cta, number = turn
        self.arrive(self.turns[cta, number + 1], self.now + self.kernel.costs.handoff)

    def issue_s(self, role: str, tile: int) -> _Issue:
        yield from self.wait(role, STALL, tile, self.k_full[tile])
        return self.gemm(role, "S", tile, self.kernel.kv, self.kernel.dim)

    def issue_pv(self, role: str, tile: int) -> _Issue:
        yield from self.wait(role, STALL, tile, self.v_full[tile])
        return self.gemm(role, "PV", tile, self.kernel.dim_v, self.kernel.kv)

    def gemm(self, role: str, what: str, tile: int, columns: int, depth: int) -> float:
        """A product; of Q K' both factors, of P V only V comes out of shared memory."""
        k = self.kernel
        rows = columns + (ROWS if what == "S" else 0)
        read = rows * depth * k.element_bytes / k.smem_bytes
        cycles = max(2 * ROWS * columns * depth / k.tensor_flops, read)
        return self.use(role, TENSOR, what, tile, cycles)

    def await_s(self, role: str, tile: int, scores: float) -> _Role:
        yield from self.wait(role, "S", tile, scores + self.kernel.costs.drain)

    def await_pv(self, role: str, tile: int, values: float) -> _Role:
        yield from self.wait(role, "PV", tile, values)
        self.arrive(self.v_empty[tile], self.now)

    def softmax(self, warpgroup: int, tile: int) -> _Role:
        """The maximum of all scores where it is needed, then slice by slice exp2, sum and conversion."""
        k, role, start, in_item = self.kernel, f"math {warpgroup}", self.now, tile % self.tiles
        scores = ROWS * k.kv / SLICES
        if maxima := k.finds_maxima(warpgroup, in_item):
            found = MAXIMUM_OPERATIONS * maxima + MASK_OPERATIONS * k.hides(warpgroup, in_item)
            for _ in range(SLICES):
                yield self.operate(role, "softmax", tile, scores * found)
            yield self.now + k.costs.handoff * maxima  # the lanes that share a row exchange its maximum
        operations = SOFTMAX_OPERATIONS + POLYNOMIAL_OPERATIONS * k.polynomial
        operations += SOFTCAP_OPERATIONS * k.softcap
        special = scores * (1 - k.polynomial + SOFTCAP_MUFU * k.softcap)
        for _ in range(SLICES):
            alone = self.now + self.contended(self.now, k.costs.issue * scores * operations / k.lanes)
            cycles = self.contended(max(self.now, self.free[MUFU]), special / k.mufu)
            exponentials = self.use(role, MUFU, "softmax", tile, cycles)
            yield max(alone, exponentials, self.operate(role, "softmax", tile, scores * operations))
        if self.recorded:
            self.events.append(Event(role, None, "softmax", tile, start, self.now))
        self.arrive(self.k_empty[tile], self.now)

    def contended(self, start: float, cycles: float) -> float:
        """What instructions take that begin then, beside products that are under way."""
        beside = min(max(0.0, self.free[TENSOR] - start), cycles)
        return cycles + self.kernel.costs.contention * beside

    def rescale(self, warpgroup: int, tile: int) -> _Role:
        maxima = self.kernel.finds_maxima(warpgroup, tile % self.tiles)
        if self.kernel.rescale and maxima:
            yield from self.on_o(f"math {warpgroup}", tile, RESCALE_OPERATIONS * maxima)

    def store(self, role: str, tile: int) -> _Role:
        yield from self.on_o(role, tile, self.kernel.costs.store)
        self.arrive(self.item_ends[tile // self.tiles], self.now)

    def on_o(self, role: str, tile: int, operations: float) -> _Role:
        yield from self.wait(
            role, "O", tile, self.operate(role, "O", tile, ROWS * self.kernel.dim_v * operations)
        )

    def operate(self, role: str, what: str, tile: int, operations: float) -> float:
        """Gives a warpgroup's instructions to the lanes; returns when they are done."""
        return self.use(role, FMA, what, tile, operations / self.kernel.lanes)
