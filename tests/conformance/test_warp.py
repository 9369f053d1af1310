"""Instructions of one warp: ldmatrix, stmatrix, mma.sync, and those of single words."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import accumulators, b_fragments, core_fragments, encoded, fp8_values
from machine import Machine

FORMS = ((1, False), (2, False), (4, False), (1, True), (2, True), (4, True))  # matrices, transposed
TYPES = (
    ("fp16", "fp16"),
    ("bf16", "bf16"),
    ("e4m3", "e4m3"),
    ("e4m3", "e5m2"),
    ("e5m2", "e4m3"),
    ("e5m2", "e5m2"),
)


def test_matrices_go_to_the_registers_of_the_isas_lanes_and_back(machine: Machine):
    random = np.random.default_rng(5)
    rows = random.integers(0, 2**16, (4, 8, 8), np.uint16)  # matrix, row, column
    places = random.permutation(32).astype(np.int32)
    loaded = np.zeros((len(FORMS), 4, 32), np.uint32)
    stored = np.zeros((len(FORMS), 32, 8), np.uint16)
    machine.run("matrices", [rows, places, loaded, stored], grid=len(FORMS), threads=32, smem_bytes=512)
    for form, (count, transposed) in enumerate(FORMS):
        held = rows.transpose(0, 2, 1) if transposed else rows
        pairs = np.ascontiguousarray(held).reshape(4, 32, 2).view(np.uint32)[..., 0]
        assert np.array_equal(loaded[form, :count], pairs[:count])
        lines = np.full((32, 8), 0xFFFF, np.uint16)
        lines[places[: 8 * count]] = rows[:count].reshape(-1, 8)
        assert np.array_equal(stored[form], lines)


def test_mma_sync_multiplies_exactly(machine: Machine):
    random = np.random.default_rng(6)
    a_registers, b_registers, before, expected = [], [], [], []
    for a_type, b_type in TYPES:
        k = 16 if a_type in ("fp16", "bf16") else 32
        a, b, c = (random.integers(-4, 5, shape) for shape in ((16, k), (k, 8), (16, 8)))
        for registers, fragments in (
            (a_registers, core_fragments(encoded(a, a_type))),
            (b_registers, b_fragments(encoded(b, b_type))),
        ):
            registers.append(np.ascontiguousarray(fragments).view(np.uint32)[..., 0].T)
        before.append(accumulators(c.astype(np.float32)).T)
        expected.append(accumulators((a @ b + c).astype(np.float32)).T)
    found = np.zeros((len(TYPES), 4, 32), np.float32)
    arrays = [np.ascontiguousarray(np.stack(x)) for x in (a_registers, b_registers, before)]
    machine.run("mma_sync", [*arrays, found], grid=len(TYPES), threads=32)
    assert np.array_equal(found, np.stack(expected))


@pytest.mark.parametrize("columns", range(4))
def test_mma_sync_knows_every_8_bit_number(machine: Machine, columns):
    """A holds every byte; B picks eight of its columns."""
    every = np.arange(512).reshape(16, 32)
    pick = np.eye(32, dtype=int)[:, 8 * columns : 8 * columns + 8]
    a, b, expected = [], [], []
    for a_type, b_type in TYPES:
        k = 16 if a_type in ("fp16", "bf16") else 32
        bits = np.zeros((16, 16), np.uint16) if k == 16 else every.astype(np.uint8)
        a.append(np.ascontiguousarray(core_fragments(bits)).view(np.uint32)[..., 0].T)
        b.append(np.ascontiguousarray(b_fragments(encoded(pick[:k], b_type))).view(np.uint32)[..., 0].T)
        values = fp8_values(a_type)[bits] if k == 32 else bits
        with np.errstate(invalid="ignore"):
            product = (values[:, :, None] * pick[None, :k]).sum(1)
        expected.append(accumulators(product.astype(np.float32)).T)
    found = np.zeros((len(TYPES), 4, 32), np.float32)
    arrays = [np.ascontiguousarray(np.stack(x)) for x in (a, b)]
    machine.run("mma_sync", [*arrays, np.zeros_like(found), found], grid=len(TYPES), threads=32)
    assert np.array_equal(found, np.stack(expected), equal_nan=True)


def test_words_go_where_they_should(machine: Machine):
    random = np.random.default_rng(11)
    given = random.integers(0, 2**31, 32, np.int32)
    special = [0.0, -0.0, 1e-44, 2.0**-126, 2.0**126, 2.0**127, 3e38, np.inf, np.nan]
    numbers = np.array([*special, *np.exp(random.uniform(-80, 80, 500))], np.float32)
    shifted, same = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    quads, reciprocals = np.full((32, 4), 7, np.uint32), np.zeros_like(numbers)
    tangents = np.zeros((2, len(numbers)), np.float32)
    fields = [given, numbers, shifted, same, quads, reciprocals, tangents, len(numbers)]
    machine.run("words", fields, grid=1, threads=32, smem_bytes=128)
    assert np.array_equal(shifted, np.roll(given, -1)) and np.all(same == 1000)
    expected = np.where(np.arange(32) % 2, 7, shifted).astype(np.uint32)
    assert np.array_equal(quads, expected[:, None] + (np.arange(32) % 2 == 0)[:, None] * np.arange(4))
    tiny = 2.0**-126  # below it numbers are zero
    with np.errstate(divide="ignore", over="ignore"):
        exact = 1 / np.where(numbers < tiny, np.copysign(0, numbers), numbers)
    exact = np.where(exact < tiny, np.copysign(0, exact), exact)  # -inf stays
    exact[numbers == 0] = np.copysign(np.inf, numbers[numbers == 0])
    np.testing.assert_allclose(reciprocals, exact, rtol=2.0**-22, atol=0)
    tangent = np.tanh(np.log(2) * numbers.astype(np.float64))
    np.testing.assert_allclose(tangents, np.stack([tangent, -tangent]), rtol=0, atol=5e-7)
