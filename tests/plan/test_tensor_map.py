"""What a tensor map may say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fagen.errors import LaunchError
from fagen.plan.tensor_map import TensorMap

GOOD = TensorMap("bf16", (128, 1000), (256,), (64, 128), 128)


def test_a_box_takes_its_bytes_whatever_the_tensor_holds():
    GOOD.check(16)
    assert GOOD.box_bytes == 64 * 128 * 2
    assert replace(GOOD, dtype="e4m3").box_bytes == 64 * 128


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dims": (), "strides": (), "box": ()}, "rank is 0; allowed: 1 to 5"),
        ({"dims": (1,) * 6, "strides": (16,) * 5, "box": (8,) * 6}, "rank is 6; allowed: 1 to 5"),
        ({"strides": ()}, r"strides \[\] and box \[64, 128\] do not fit rank 2"),
        ({"dims": (0, 4)}, r"a dimension is 0; allowed: 1 to 2\*\*31"),
        ({"strides": (8,)}, "a stride is 8 bytes; allowed: multiples of 16"),
        ({"strides": (2**40,)}, "a stride is 1099511627776 bytes"),
        ({"box": (64, 257)}, "a side of the box is 257; allowed: 1 to 256"),
        ({"box": (4, 1), "swizzle": 0}, "a row of the box has 8 bytes; allowed: multiples of 16"),
        ({"swizzle": 16}, "swizzle is 16; allowed: 0, 32, 64, 128"),
        ({"swizzle": 64}, "a row of the box has 128 bytes; allowed with this swizzle: 64"),
    ],
)
def test_what_tma_cannot_do_is_refused_by_name(changes, said):
    with pytest.raises(LaunchError, match=said):
        replace(GOOD, **changes).check(0)


def test_the_tensor_must_be_aligned():
    with pytest.raises(LaunchError, match="address is 0x18; allowed: multiples of 16"):
        GOOD.check(24)
