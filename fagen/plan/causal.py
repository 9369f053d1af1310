"""Blocks that a causal mask leaves, counted without walking over them: lengths go up to 2**31.

The mask is aligned bottom-right: query i sees key j <= i + seqlen_k - seqlen_q. A block is a pair of a Q
block and a K/V block; the mask leaves it if its last query sees its first key.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Blocks:
    """The blocks of one head: lengths and tile sizes in rows, the last Q and K/V block possibly ragged."""

    seqlen_q: int
    seqlen_k: int
    tile_q: int
    tile_kv: int

    @property
    def along_q(self) -> int:
        """Q blocks."""
        return -(-self.seqlen_q // self.tile_q)

    @property
    def along_kv(self) -> int:
        """K/V blocks."""
        return -(-self.seqlen_k // self.tile_kv)

    @property
    def left(self) -> int:
        """Blocks that the mask leaves."""
        offset = self.seqlen_k - self.seqlen_q
        first = max(-(-offset // self.tile_kv), 0)  # the first K/V block that some query might not see
        hidden = floor_sum(self.along_kv - first, self.tile_kv, first * self.tile_kv - offset, self.tile_q)
        return self.along_q * self.along_kv - hidden

    @property
    def keys_read(self) -> int:
        """Keys that the Q blocks read, each those of the K/V blocks that the mask leaves it."""
        short = self.along_kv * self.tile_kv - self.seqlen_k  # what the last K/V block lacks
        return self.left * self.tile_kv - (self.along_q - self._hidden(self.along_kv - 1)) * short

    @property
    def queries_read(self) -> int:
        """Queries that the K/V blocks read, each those of the Q blocks that the mask leaves it."""
        short = (
            self.along_q * self.tile_q - self.seqlen_q
        )  # what the last Q block lacks, which sees every key
        return self.left * self.tile_q - self.along_kv * short

    def _hidden(self, kv_block: int) -> int:
        """Q blocks that end before the first query that sees anything of a K/V block."""
        return max(kv_block * self.tile_kv - self.seqlen_k + self.seqlen_q, 0) // self.tile_q


def floor_sum(count: int, step: int, start: int, divisor: int) -> int:
    """The sum of (start + i*step) // divisor for i in range(count), in the steps of Euclid's algorithm."""
    if count == 0:
        return 0
    whole = count * (count - 1) // 2 * (step // divisor) + count * (start // divisor)
    step, start = step % divisor, start % divisor
    # What is left counts the lattice points under a line; read along the other axis, it is another such sum.
    top = start + count * step
    return whole + floor_sum(top // divisor, divisor, top % divisor, step)
