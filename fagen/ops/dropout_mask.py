"""Which elements of P the kernels keep under dropout, in plain PyTorch: what attn/dropout.cuh must compute.

Philox4x32-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)  # of the key, after each round
_WORD = 0xFFFFFFFF


def kept(seed: int, batch: int, heads_q: int, seqlen_q: int, seqlen_k: int, p: float) -> Tensor:
    """What dropout of probability `p` keeps of P, bool [batch, heads_q, seqlen_q, seqlen_k], on the CPU.

    `seed` is the call's, any int64. Of packed sequences each has a corner of such a plane: its query and key
    are counted within the sequence.
    """
    heads = torch.arange(batch * heads_q).view(batch, heads_q, 1, 1)
    row, col = torch.arange(seqlen_q).view(-1, 1), torch.arange(seqlen_k)
    lane = row % 8 * 4 + col % 8 // 2
    element = col % 16 // 8 * 4 + row % 16 // 8 * 2 + col % 2
    words = torch.stack(philox((row // 16, col // 16, heads, lane), (seed & _WORD, seed >> 32 & _WORD)))
    word = words.gather(0, (element // 2).expand(words.shape[1:]).unsqueeze(0)).squeeze(0)
    halfword = word >> element % 2 * 16 & 0xFFFF
    return halfword >= _threshold(p)


def _threshold(p: float) -> int:
    """What a 16-bit random number must reach for its element to be kept with probability 1 - p."""
    return min(round(p * 65536), 65535)


def philox(counter: tuple[Tensor, ...], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Four 32-bit random words for the four of each counter, as int64; the counter's tensors broadcast."""
    c = torch.broadcast_tensors(*counter)
    for _ in range(10):
        high, low = zip(*(_product(m, x) for m, x in zip(_MULTIPLIERS, c[::2], strict=True)), strict=True)
        c = (high[1] ^ c[1] ^ key[0], low[1], high[0] ^ c[3] ^ key[1], low[0])
        key = ((key[0] + _STEPS[0]) & _WORD, (key[1] + _STEPS[1]) & _WORD)
    return c


def _product(factor: int, word: Tensor) -> tuple[Tensor, Tensor]:
    """The upper and lower 32 bits of a product that int64 does not hold."""
    low, high = factor * (word & 0xFFFF), factor * (word >> 16)
    middle = (low >> 16) + (high & 0xFFFF)
    return (high >> 16) + (middle >> 16), (middle << 16 | low & 0xFFFF) & _WORD
