"""What shuffles, votes, ldmatrix and mma.sync give, and the rounding to 16 bits."""

import numpy as np
import pytest
from cases import THREADS, run_case

LANES = np.arange(32)


def test_shuffles_and_votes():
    out = run_case("shuffles")[: 8 * THREADS].reshape(2, 32, 8)
    every_third = sum(1 << lane for lane in range(0, 32, 3))
    expected = [
        np.full(32, 105),
        100 + (LANES ^ 3),
        100 + np.where(LANES >= 2, LANES - 2, LANES),
        100 + np.where(LANES < 30, LANES + 2, LANES),
        100 + LANES // 8 * 8 + 1,
        100 + np.where(LANES % 8 < 7, LANES + 1, LANES),
        np.full(32, every_third),
        np.full(32, 0b01),
    ]
    for warp in out:
        np.testing.assert_array_equal(warp.T, expected)


def tile() -> tuple[np.ndarray, np.ndarray]:
    """16 x 16 distinct small integers as 16-bit elements, and as the kernel's words."""
    values = np.arange(256, dtype=np.uint16).reshape(16, 16)
    words = np.zeros(1024, np.uint32)
    words[:128] = values.view(np.uint32).ravel()
    return values, words


@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_hands_out_rows_or_columns(transposed):
    values, words = tile()
    out = run_case("ldmatrix_transposed" if transposed else "ldmatrix", words)[:128].reshape(32, 4)
    blocks = [values[r : r + 8, c : c + 8] for c in (0, 8) for r in (0, 8)]
    for i, block in enumerate(blocks):
        given = np.ascontiguousarray(block.T if transposed else block)
        np.testing.assert_array_equal(out[:, i], given.view(np.uint32).ravel())


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_mma_multiplies_exactly(dtype):
    values = np.random.default_rng(0).integers(-8, 9, (16, 16)).astype(np.float32)
    bits = (
        values.astype(np.float16).view(np.uint16)
        if dtype == "fp16"
        else (values.view(np.uint32) >> 16).astype(np.uint16)
    )
    words = np.zeros(1024, np.uint32)
    words[:128] = bits.view(np.uint32).ravel()
    out = run_case(f"mma_{dtype}", words)[:256].view(np.float32).reshape(32, 2, 2, 2)
    expected = values @ values.T
    expected[:, :8] += 1
    for lane in LANES:
        for half in range(2):
            rows, first = [lane // 4, lane // 4 + 8], 8 * half + lane % 4 * 2
            np.testing.assert_array_equal(out[lane, half], expected[rows, first : first + 2])


def test_rounding_to_16_bits_is_to_nearest_even():
    rng = np.random.default_rng(0)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    finite = np.unique(halves[np.isfinite(halves)])
    between = (finite[1:] + finite[:-1]) / 2  # ties
    near = np.concatenate([finite, between, np.nextafter(between, np.inf), np.nextafter(between, -np.inf)])
    edges = np.array([np.inf, -np.inf, np.nan, 65519.996, 65520, 3e38, 2**-25, 2**-24, -0.0], np.float32)
    wild = rng.integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    given = np.concatenate([near, edges, wild]).astype(np.float32)
    out = run_case("round_to_16_bits", given.view(np.uint32))
    number = ~np.isnan(given)
    with np.errstate(over="ignore"):
        fp16 = given.astype(np.float16).view(np.uint16)
    bits = given.view(np.uint32).astype(np.uint64)
    bf16 = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    np.testing.assert_array_equal((out & 0xFFFF)[number], fp16[number])
    np.testing.assert_array_equal((out >> 16)[number], bf16[number])
    np.testing.assert_array_equal(out[~number], 0x7FFF7FFF)


def test_widening_fp16():
    out = run_case("widen_fp16", np.zeros(1 << 16, np.uint32)).view(np.float32)
    np.testing.assert_array_equal(
        out, np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    )
