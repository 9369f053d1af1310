"""What CTAs in longest-first order find in L2, step by step, where their walks drift apart.

Each CTA takes a tile in that order and walks the blocks that its tile sees, from the last to the first, a
block a step; who ends takes the next tile. So the CTAs of one pair are anywhere in its blocks, and what one
has just read another finds only if not too much came in between. No formula says how often; this counts it on
a cache that drops what is longest unused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from heapq import heappop, heappush
from itertools import islice

from fagen.plan.blocks import Blocks
from fagen.plan.order import longest_first

MOST_STEPS = 1_000_000  # of all CTAs: a second or so
HELD = 2 / 3  # of L2: the rest goes to second copies in its other half. Fitted, docs/performance.md
START = 1.5  # steps from the end of a CTA to the first block of the next one


@dataclass(frozen=True)
class Walk:
    """The walks of a kernel whose CTAs are dealt longest first."""

    blocks: Blocks  # a tile of the outer loop is a "Q block" of these, what it walks are "K/V blocks"
    first_is_longest: bool  # in the backward; else the last tile is
    pairs: int  # (batch, head) pairs that tiles are of
    abreast: int  # of them, side by side
    sharing: int  # pairs that walk the same blocks
    repeats: int  # walks of a tile, each over blocks of its own
    ctas: int  # that run at a time
    block_bytes: int
    own_bytes: int  # that pass through L2 at the end of a CTA

    def shortened(self) -> Walk | None:
        """The same of as many pairs as MOST_STEPS allow; None if not even those of one K/V head do."""
        together = self.sharing * self.repeats * self.blocks.left
        if not 0 < together <= MOST_STEPS:
            return None
        return replace(self, pairs=min(self.pairs, MOST_STEPS // together * self.sharing))


@cache
def reads(walk: Walk, l2_bytes: int) -> float:
    """Times that a block comes from HBM, on the mean."""
    held = max(1, int(HELD * l2_bytes) // walk.block_bytes)
    own = walk.own_bytes // walk.block_bytes
    lines: OrderedDict[Hashable, None] = OrderedDict()
    missed = passed = 0
    order = longest_first(walk.pairs, walk.blocks.along_q, walk.abreast)
    first = enumerate(islice(order, walk.ctas))
    running = [(place / walk.ctas, place, _visits(walk, *item)) for place, item in first]
    while running:
        time, place, visits = heappop(running)
        block = next(visits, None)
        if block is not None:
            if block in lines:
                lines.move_to_end(block)
            else:
                missed += 1
                lines[block] = None
            heappush(running, (time + 1, place, visits))
        else:
            lines.update(dict.fromkeys(range(passed, passed + own)))
            passed += own
            if item := next(order, None):
                heappush(running, (time + START, place, _visits(walk, *item)))
        while len(lines) > held:
            lines.popitem(last=False)
    return missed / (walk.pairs // walk.sharing * walk.repeats * walk.blocks.along_kv)


def _visits(walk: Walk, pair: int, tile: int) -> Iterator[tuple[int, int, int]]:
    tile = walk.blocks.along_q - 1 - tile if walk.first_is_longest else tile
    seen = walk.blocks.seen(tile)
    return ((pair // walk.sharing, head, block) for head in range(walk.repeats) for block in reversed(seen))
