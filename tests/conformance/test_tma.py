"""TMA: every rank, swizzle and element size; boxes inside the tensor and over its edges; multicast."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
from layouts import encoded, swizzled
from machine import Machine, Map

from fagen.plan.maps import FAR, WRAP
from fagen.plan.tensor_map import ELEMENT_BYTES, TensorMap

SMEM = 40 * 1024
MAPS = 40  # kMaps of the kernels
TILES = 1024  # where tma_load.cu puts its tiles: a multiple of every swizzle's pattern


@dataclass
class Tensor:
    """A tensor of random bytes, its dimensions in a random order in memory with gaps between them."""

    dtype: str
    rank: int
    swizzle: int
    seed: int

    def __post_init__(self):
        random = np.random.default_rng([self.seed, self.rank, self.swizzle, ELEMENT_BYTES[self.dtype]])
        size = ELEMENT_BYTES[self.dtype]
        span = self.swizzle or 16 * int(random.integers(1, 9))
        box = [span // size]
        for _ in range(self.rank - 1):
            box.append(int(random.integers(1, max(2, min(9, 8192 // (math.prod(box) * size))))))
        dims = [int(side + random.integers(1, side + 2)) for side in box]
        strides, bytes_so_far = [0] * self.rank, (dims[0] * size + 15) // 16 * 16
        for dim in 1 + random.permutation(self.rank - 1):
            strides[dim] = bytes_so_far + 16 * int(random.integers(0, 3))
            bytes_so_far = strides[dim] * dims[dim]
        strides[0] = size
        self.strides = strides
        self.data = random.integers(0, 256, bytes_so_far + 16, np.uint8)
        self.map = TensorMap(self.dtype, tuple(dims), tuple(strides[1:]), tuple(box), self.swizzle)

    def corners(self) -> list[list[int]]:
        """Boxes: inside, over the upper edges, over the lower edges, over some of each.

        Their innermost coordinates are multiples of 16 bytes, as TMA wants them.
        """
        box, dims = self.map.box, self.map.dims
        over = [dim - side // 2 for dim, side in zip(dims, box, strict=True)]
        under = [-(side // 2) for side in box]
        step = 16 // ELEMENT_BYTES[self.dtype]
        over[0], under[0] = over[0] // step * step, under[0] // step * step
        return [
            [0] * self.rank,
            over,
            under,
            [o if i % 2 else u for i, (o, u) in enumerate(zip(over, under, strict=True))],
        ]

    def elements(self, at: list[int], written: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """For every element of a box, outermost first: byte offset in memory, and whether it exists.

        What TMA writes it ends with 16 whole bytes: a row's last element takes those after it along.
        """
        step = 16 // ELEMENT_BYTES[self.dtype] if written else 1
        dims = [-(-self.map.dims[0] // step) * step, *self.map.dims[1:]]
        offset, exists = np.zeros(self.map.box[::-1], np.int64), np.ones(self.map.box[::-1], bool)
        for dim, (first, side) in enumerate(zip(at, self.map.box, strict=True)):
            shape = [1] * self.rank
            shape[self.rank - 1 - dim] = side
            index = (first + np.arange(side)).reshape(shape)
            offset = offset + index * self.strides[dim]
            exists = exists & (index >= 0) & (index < dims[dim])
        return offset.ravel(), exists.ravel()

    def box(self, at: list[int]) -> np.ndarray:
        """The bytes of a box, dense."""
        size = ELEMENT_BYTES[self.dtype]
        offset, exists = self.elements(at)
        byte = np.where(exists, offset, 0)[:, None] + np.arange(size)
        return np.where(exists[:, None], self.data[byte], 0).astype(np.uint8).ravel()


def tensors(dtype: str) -> list[Tensor]:
    """One of every rank and swizzle."""
    return [
        Tensor(dtype, rank, swizzle, seed=0)
        for rank, swizzle in itertools.product(range(1, 6), (0, 32, 64, 128))
    ]


def maps(every: list[Tensor]) -> list[Map]:
    """As many as the kernels have room for."""
    listed = [Map(tensor.data, tensor.map) for tensor in every]
    return listed + [listed[0]] * (MAPS - len(listed))


def in_memory(dense: np.ndarray, swizzle: int, start: int) -> np.ndarray:
    """Shared memory from `start` on after a box has landed there."""
    image = np.empty_like(dense)
    image[swizzled(start + np.arange(dense.size), swizzle) - start] = dense
    return image


def case(index: int, tensor: Tensor, at: list[int], *rest: int) -> list[int]:
    return [index, tensor.rank, *at, *[0] * (5 - tensor.rank), *rest]


def check_loads(machine: Machine, every: list[Tensor], boxes: list[tuple[int, list[int], int]]) -> None:
    """Load boxes, given as (tensor, corner, place of the tile); what lies in shared memory must be right."""
    cases, expected, out = [], [], 0
    for index, at, start in boxes:
        dense = every[index].box(at)
        cases.append(case(index, every[index], at, start, dense.size, out))
        expected.append(in_memory(dense, every[index].swizzle, TILES + start))
        out += dense.size
    found = np.full(out, 0xA5, np.uint8)
    machine.run(
        "tma_load",
        [maps(every), np.array(cases, np.int32), found],
        grid=len(cases),
        smem_bytes=SMEM,
    )
    parts = np.split(found, np.cumsum([e.size for e in expected])[:-1])
    for got, want, box in zip(parts, expected, boxes, strict=True):
        assert np.array_equal(got, want), (box, every[box[0]].map)


@pytest.mark.parametrize("dtype", ["e4m3", "bf16", "fp32"])
def test_a_load_lands_swizzled_and_reads_zeros_outside(machine: Machine, dtype):
    every = tensors(dtype)
    check_loads(machine, every, [(i, at, 0) for i, tensor in enumerate(every) for at in tensor.corners()])


def test_the_swizzle_is_one_of_the_address_not_of_the_box(machine: Machine):
    every = [Tensor("bf16", 2, swizzle, seed=1) for swizzle in (32, 64, 128)]
    check_loads(machine, every, [(i, [0, 0], start) for i in range(3) for start in range(0, 1024, 128)])


def test_sides_of_a_box_may_be_256(machine: Machine):
    long, tall = Tensor("e4m3", 1, 0, seed=2), Tensor("bf16", 2, 128, seed=2)
    for tensor, dims, box in ((long, (1000,), (256,)), (tall, (100, 300), (64, 256))):
        strides = (dims[0] * 2 + 8,) * (len(dims) - 1)
        tensor.map = replace(tensor.map, dims=dims, strides=strides, box=box)
        tensor.strides[1:] = strides
        tensor.data = np.random.default_rng(9).integers(0, 256, dims[-1] * 208, np.uint8)
    check_loads(machine, [long, tall], [(0, [0], 0), (0, [896], 0), (1, [0, 0], 0), (1, [64, 200], 0)])


@dataclass
class Packed:
    """Sequences one behind the other, [tokens, heads, 64] of bf16, and their map (fagen/plan/maps.py)."""

    lengths: tuple[int, ...]
    heads: int
    box_rows: int

    def __post_init__(self):
        self.tokens, self.row_bytes = sum(self.lengths), 128 * self.heads
        self.data = np.random.default_rng(12).integers(1, 2**16, (self.tokens, self.heads, 64), np.uint16)
        self.map = TensorMap(
            "bf16",
            (64, FAR, self.tokens + 1, FAR + 1, self.heads),
            (self.row_bytes, self.row_bytes, WRAP - self.row_bytes, 128),
            (64, self.box_rows, 1, 1, 1),
            128,
        )

    def boxes(self) -> Iterator[tuple[list[int], int, slice]]:
        """Every box of every sequence, and one behind its last: coordinates, head, rows of the tensor."""
        for last, length in zip(np.cumsum(self.lengths), self.lengths, strict=True):
            for head in range(self.heads):
                for row in range(0, length + 2 * self.box_rows, self.box_rows):
                    end = int(last)
                    start = end - length + min(row, length)
                    rows = slice(start, min(start + self.box_rows, end))
                    yield [0, FAR - (length - row), end, FAR, head], head, rows


def test_loads_of_packed_sequences_end_with_the_sequence(machine: Machine):
    packed = Packed((20, 0, 16, 1, 33), heads=3, box_rows=16)
    placed = Map(packed.data, packed.map)
    cases, expected = [], []
    for at, head, rows in packed.boxes():
        dense = np.zeros((packed.box_rows, 64), np.uint16)
        dense[: rows.stop - rows.start] = packed.data[rows, head]
        cases.append([0, 5, *at, 0, dense.nbytes, len(cases) * dense.nbytes])
        expected.append(in_memory(dense.view(np.uint8).ravel(), 128, TILES))
    found = np.full((len(cases), 128 * packed.box_rows), 0xA5, np.uint8)
    fields = [[placed] * MAPS, np.array(cases, np.int32), found]
    machine.run("tma_load", fields, grid=len(cases), smem_bytes=SMEM)
    assert np.array_equal(found, expected)


def test_stores_of_packed_sequences_end_with_the_sequence(machine: Machine):
    packed = Packed((20, 0, 16, 1, 33), heads=3, box_rows=16)
    placed = Map(packed.data, packed.map)
    random, wanted = np.random.default_rng(13), np.zeros_like(packed.data)
    cases, images = [], []
    for at, head, rows in packed.boxes():
        dense = random.integers(1, 2**16, (packed.box_rows, 64), np.uint16)
        wanted[rows, head] = dense[: rows.stop - rows.start]
        cases.append([0, 5, *at, 0, dense.nbytes, len(cases) * dense.nbytes, 0])
        images.append(in_memory(dense.view(np.uint8).ravel(), 128, 0))
    fields = [[placed] * MAPS, np.array(cases, np.int32), np.concatenate(images)]
    machine.run("tma_store", fields, grid=len(cases), smem_bytes=SMEM)
    assert np.array_equal(packed.data, wanted)


def test_a_dimension_of_stride_0_repeats_what_there_is(machine: Machine):
    tensor = Tensor("bf16", 3, 64, seed=3)
    for still in (1, 2):
        strides = [s * (d != still) for d, s in enumerate(tensor.strides)]
        tensor = replace_strides(tensor, strides)
        check_loads(machine, [tensor], [(0, at, 0) for at in tensor.corners()])


def replace_strides(tensor: Tensor, strides: list[int]) -> Tensor:
    changed = copy(tensor)
    changed.strides = strides
    changed.map = replace(tensor.map, strides=tuple(strides[1:]))
    return changed


def stored(tensor: Tensor, at: list[int], dense: np.ndarray) -> None:
    """Write a dense box to the tensor where it exists."""
    size = ELEMENT_BYTES[tensor.dtype]
    offset, exists = tensor.elements(at, written=True)
    tensor.data[offset[exists][:, None] + np.arange(size)] = dense.reshape(-1, size)[exists]


@pytest.mark.parametrize("dtype", ["e4m3", "bf16", "fp32"])
def test_a_store_writes_what_lies_inside_and_nothing_else(machine: Machine, dtype):
    random = np.random.default_rng(2)
    placed = [(t, at) for t in tensors(dtype) for at in ([0] * t.rank, t.corners()[1])]
    every, cases, images, start = [], [], [], 0
    wanted = []
    for index, (tensor, at) in enumerate(placed):
        own = Tensor(tensor.dtype, tensor.rank, tensor.swizzle, seed=0)  # one tensor per box
        dense = random.integers(0, 256, own.map.box_bytes, np.uint8)
        every.append(own)
        cases.append(case(index, own, at, 0, dense.size, start, 0))
        images.append(in_memory(dense, own.swizzle, 0))
        start += dense.size
        want = Tensor(tensor.dtype, tensor.rank, tensor.swizzle, seed=0)
        stored(want, at, dense)
        wanted.append(want.data)
    fields = [maps(every), np.array(cases, np.int32), np.concatenate(images)]
    machine.run(
        "tma_store",
        fields,
        grid=len(cases),
        smem_bytes=SMEM,
    )
    for tensor, want, what in zip(every, wanted, cases, strict=True):
        assert np.array_equal(tensor.data, want), (what, tensor.map)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_reduce_add_adds_every_box_once(machine: Machine, dtype):
    random = np.random.default_rng(3)
    size = ELEMENT_BYTES[dtype]
    every, cases, images, wanted, start = [], [], [], [], 0
    for index, tensor in enumerate(tensors(dtype)):
        numbers = random.integers(-8, 9, tensor.data.size // size)
        tensor.data = encoded(numbers, dtype).view(np.uint8).copy()
        total = numbers.astype(np.float64)
        every.append(tensor)
        for at in ([0] * tensor.rank, tensor.corners()[1], [0] * tensor.rank):  # twice at the same place
            added = random.integers(-8, 9, math.prod(tensor.map.box))
            dense = encoded(added, dtype).view(np.uint8)
            cases.append(case(index, tensor, at, 0, dense.size, start, 1))
            images.append(in_memory(dense, tensor.swizzle, 0))
            start += dense.size
            offset, exists = tensor.elements(at, written=True)
            np.add.at(total, offset[exists] // size, added[exists])
        wanted.append(encoded(total, dtype).view(np.uint8))
    fields = [maps(every), np.array(cases, np.int32), np.concatenate(images)]
    machine.run(
        "tma_store",
        fields,
        grid=len(cases),
        smem_bytes=SMEM,
    )
    for tensor, want in zip(every, wanted, strict=True):
        assert np.array_equal(tensor.data, want), tensor.map


def test_multicast_fills_the_ctas_of_its_mask_and_completes_on_the_barrier_of_each(machine: Machine):
    clusters, rows, columns = 3, 16, 32
    tensor = np.random.default_rng(4).random((2 * clusters * rows, columns)).astype(np.float32)
    box_bytes = 4 * rows * columns
    tensor_map = TensorMap("fp32", (columns, len(tensor)), (4 * columns,), (columns, rows), 128)
    found = np.zeros((clusters, 2, 2, box_bytes), np.uint8)  # cluster, CTA, box
    machine.run(
        "tma_multicast",
        [Map(tensor, tensor_map), box_bytes, rows, found],
        grid=2 * clusters,
        smem_bytes=SMEM,
        cluster=2,
    )
    boxes = tensor.reshape(clusters, 2, rows * columns).view(np.uint8)
    for cluster in range(clusters):
        shared, own = (in_memory(box, 128, TILES) for box in boxes[cluster])
        assert np.array_equal(found[cluster, 0, 0], shared) and np.array_equal(found[cluster, 1, 0], shared)
        assert np.array_equal(found[cluster, 1, 1], own) and not found[cluster, 0, 1].any()
