"""Blocks that a mask leaves, counted without walking over them: lengths go up to 2**31.

The mask is a window (left, right), aligned bottom-right: with offset = seqlen_k - seqlen_q, query i sees key
j if i + offset - left <= j <= i + offset + right; None leaves that side open. A block is a pair of a Q block
and a K/V block; the mask leaves it if any of its queries sees any of its keys.
"""

from __future__ import annotations

from dataclasses import dataclass

Window = tuple[int | None, int | None]


@dataclass(frozen=True)
class Blocks:
    """The blocks of one head: lengths and tile sizes in rows, the last Q and K/V block possibly ragged."""

    seqlen_q: int
    seqlen_k: int
    tile_q: int
    tile_kv: int
    window: Window

    @property
    def along_q(self) -> int:
        """Q blocks."""
        return -(-self.seqlen_q // self.tile_q)

    @property
    def along_kv(self) -> int:
        """K/V blocks."""
        return -(-self.seqlen_k // self.tile_kv)

    @property
    def transposed(self) -> Blocks:
        """The same blocks, with keys for queries."""
        left, right = self.window
        return Blocks(self.seqlen_k, self.seqlen_q, self.tile_kv, self.tile_q, (right, left))

    def seen(self, q_block: int) -> range:
        """The K/V blocks that the mask leaves one Q block."""
        return range(self._starts(q_block, 1), self._ends(q_block, 1))

    def of(self, q_block: int) -> int:
        """How many these are."""
        return self._ends(q_block, 1) - self._starts(q_block, 1)

    @property
    def left(self) -> int:
        """Blocks that the mask leaves."""
        return self._ends(0, self.along_q) - self._starts(0, self.along_q)

    @property
    def keys_read(self) -> int:
        """Keys that the Q blocks read, each those of the K/V blocks that the mask leaves it."""
        short = self.along_kv * self.tile_kv - self.seqlen_k  # what the last K/V block lacks
        return self.left * self.tile_kv - (self.along_q - self._hidden(self.along_kv - 1)) * short

    @property
    def queries_read(self) -> int:
        """Queries that the K/V blocks read, each those of the Q blocks that the mask leaves it."""
        short = self.along_q * self.tile_q - self.seqlen_q  # what the last Q block lacks
        return self.left * self.tile_q - self.of(self.along_q - 1) * short

    def _hidden(self, kv_block: int) -> int:
        """Q blocks that end before the first query that sees anything of a K/V block."""
        right = self.window[1]
        if right is None:
            return 0
        return max(kv_block * self.tile_kv - self.seqlen_k + self.seqlen_q - right, 0) // self.tile_q

    def _starts(self, first: int, count: int) -> int:
        """The sum over Q blocks of the first K/V block that they see."""
        left = self.window[0]
        if left is None:
            return 0
        start = first * self.tile_q + self.seqlen_k - self.seqlen_q - left
        return _clamped_floor_sum(count, self.tile_q, start, self.tile_kv, self.seqlen_k)

    def _ends(self, first: int, count: int) -> int:
        """The sum over Q blocks of the K/V block after the last one that they see."""
        right = self.window[1]
        if right is None:
            return count * self.along_kv
        # A ragged last Q block sees the last key, as it would if it were whole.
        end = (first + 1) * self.tile_q + self.seqlen_k - self.seqlen_q + right
        last = self.tile_kv - 1
        return _clamped_floor_sum(count, self.tile_q, end + last, self.tile_kv, self.seqlen_k + last)


def _clamped_floor_sum(count: int, step: int, start: int, divisor: int, top: int) -> int:
    """The sum of min(max(start + i*step, 0), top) // divisor for i in range(count)."""
    if count == 1:
        return min(max(start, 0), top) // divisor
    positive = min(max(-(start // step), 0), count)  # the first i that is not below 0
    clamped = min(max(-((start - top) // step), positive), count)  # the first i that is not below top
    rising = floor_sum(clamped - positive, step, start + positive * step, divisor)
    return rising + (count - clamped) * (top // divisor)


def floor_sum(count: int, step: int, start: int, divisor: int) -> int:
    """The sum of (start + i*step) // divisor for i in range(count), in the steps of Euclid's algorithm."""
    if count == 0:
        return 0
    whole = count * (count - 1) // 2 * (step // divisor) + count * (start // divisor)
    step, start = step % divisor, start % divisor
    # What is left counts the lattice points under a line; read along the other axis, it is another such sum.
    top = start + count * step
    return whole + floor_sum(top // divisor, divisor, top % divisor, step)
