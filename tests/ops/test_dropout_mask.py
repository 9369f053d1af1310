"""The dropout mask against published random numbers, and what it must be like."""

from __future__ import annotations

import math

import pytest
import torch

from fagen.ops.dropout_mask import kept, philox

SEED = -7_046_029_254_386_353_131  # all bits of it matter


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the known answers that Random123 ships for philox4x32-10
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_numbers(counter: list[int], key: list[int], expected: list[int]) -> None:
    found = philox(tuple(torch.tensor(counter)), (key[0], key[1]))
    assert [int(word) for word in found] == expected


@pytest.mark.parametrize("p", [0.1, 0.17, 0.5, 0.9])
def test_the_kept_share(p: float) -> None:
    """Of all elements and of each place in a 16 x 16 block, within 4 standard deviations."""
    mask = kept(SEED, 2, 3, 320, 320, p).double()
    for share, count in ((mask.mean(), mask.numel()), (by_place(mask), mask.numel() // 256)):
        assert ((share - (1 - p)).abs() <= 4 * math.sqrt(p * (1 - p) / count)).all()


def by_place(mask: torch.Tensor) -> torch.Tensor:
    return mask.view(-1, 320 // 16, 16, 320 // 16, 16).mean((0, 1, 3))


def test_masks_of_heads_entries_seeds_and_blocks_are_unlike() -> None:
    """As unlike as independent masks: half of the elements are the same."""
    mask = kept(SEED, 2, 3, 160, 160, 0.5)
    blocks = mask.view(2, 3, 10, 16, 10, 16).permute(0, 1, 2, 4, 3, 5).reshape(-1, 256)
    others = [kept(seed, 2, 3, 160, 160, 0.5) for seed in (SEED + 1, SEED ^ 2**40, 0)]
    for one, other in (
        *((blocks[i], blocks[j]) for i in range(0, 600, 50) for j in range(i + 1, 600, 37)),
        *((mask, other) for other in others),
    ):
        same = (one == other).double().mean()
        assert abs(same - 0.5) <= 5 * 0.5 / math.sqrt(one.numel())


def test_the_same_seed_gives_the_same_mask_whatever_the_lengths() -> None:
    large = kept(SEED, 1, 3, 100, 90, 0.3)
    assert torch.equal(kept(SEED, 1, 3, 33, 17, 0.3), large[:, :, :33, :17])
    assert kept(SEED, 1, 3, 100, 90, 0.0).all()
