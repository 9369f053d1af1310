"""The tensor maps of a launch: a numpy TMA that follows them brings exactly the wanted rows, else zeros."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from fagen.errors import PlanError
from fagen.plan.arguments import Arguments, arguments
from fagen.plan.ir import Plan
from fagen.plan.kernels import main_kernel
from fagen.plan.launch import Shape, launch
from fagen.plan.maps import FAR, Strides
from fagen.plan.planner import plan
from fagen.plan.tensor_map import TensorMap
from fagen.spec.model import Spec

TILE = {"tile": {"q": 128, "kv": 64}, "roles": {"math": {"warps": 8}}}
TENSORS: tuple[str, ...] = ("q", "k", "v", "out")
CONTIGUOUS = {"bshd": (0, 1, 2), "bhsd": (0, 2, 1), "thd": (None, 0, 1)}


def with_own_o(spec: Spec) -> Plan:
    """The plan with a buffer for O, from which out goes by TMA, whether it fits or not."""
    planned = plan(spec)
    return replace(planned, tiling=replace(planned.tiling, own_o=True))


def contiguous(sizes: tuple[int, ...], layout: str) -> Strides:
    """Strides of a new tensor of these sizes, in elements."""
    steps = [int(np.prod(sizes[i + 1 :])) for i in range(len(sizes))]
    batch, row, head = CONTIGUOUS[layout]
    return Strides(0 if batch is None else steps[batch], steps[row], steps[head])


def load(tensor_map: TensorMap, memory: np.ndarray, start: int, at: tuple[int, ...]) -> np.ndarray:
    """What TMA brings of `memory`, a flat array whose tensor starts at element `start`; innermost axis last.

    A box may hang over every edge of the map, not of memory.
    """
    itemsize = memory.itemsize
    index = np.indices(tensor_map.box[::-1]).reshape(len(at), -1)[::-1]  # innermost first
    coordinates = index + np.array(at)[:, None]
    inside = np.all((coordinates >= 0) & (coordinates < np.array(tensor_map.dims)[:, None]), axis=0)
    steps = np.array([itemsize, *tensor_map.strides])[:, None]
    address = start * itemsize + (coordinates * steps).sum(axis=0)  # in 64 bits, which wrap
    found = np.zeros(index.shape[1], memory.dtype)
    assert np.all(address[inside] % itemsize == 0)
    where = address[inside] // itemsize
    assert np.all((where >= 0) & (where < memory.size)), "reads beside the tensor's memory"
    found[inside] = memory[where]
    return found.reshape(tensor_map.box[::-1])


@dataclass(frozen=True)
class Made:
    arguments: Arguments
    memory: dict[str, np.ndarray]
    strides: dict[str, Strides]


def make(planned, shape: Shape, sizes: dict[str, tuple[int, ...]]) -> Made:
    """Contiguous tensors q, k, v and out of distinct values."""
    layout = planned.spec.problem.layout
    strides = {name: contiguous(own, layout) for name, own in sizes.items()}
    memory = {name: np.arange(1, np.prod(own) + 1, dtype=np.uint16) for name, own in sizes.items()}
    return Made(arguments(main_kernel(planned), shape, launch(planned, shape, 1.0), strides), memory, strides)


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_boxes_of_batched_sequences(v3_spec, layout):
    planned = with_own_o(
        v3_spec(TILE, layout=layout, head_dim=72, head_dim_v=64)
    )  # padded to 96: panels of 32
    shape = Shape(2, 70, 100, 4, 2)

    def sizes(rows: int, heads: int, dim: int) -> tuple[int, ...]:
        return (2, rows, heads, dim) if layout == "bshd" else (2, heads, rows, dim)

    made = make(
        planned,
        shape,
        {"q": sizes(70, 4, 72), "k": sizes(100, 2, 72), "v": sizes(100, 2, 64), "out": sizes(70, 4, 64)},
    )
    maps = made.arguments.maps
    assert {name: (own.box, own.swizzle) for name, own in maps.items()} == {
        "q": ((32, 64, 1, 1), 64),
        "k": ((32, 64, 1, 1), 64),
        "v": ((64, 64, 1, 1), 128),
        "out": ((64, 64, 1, 1), 128),
    }
    q = made.memory["q"].reshape(sizes(70, 4, 72))
    by_head = q if layout == "bhsd" else q.transpose(0, 2, 1, 3)
    padded = np.zeros((2, 4, 128, 96), np.uint16)
    padded[:, :, :70, :72] = by_head
    for col, row, head, batch in ((0, 0, 0, 0), (64, 64, 3, 1), (32, 64, 2, 0)):
        found = load(maps["q"], made.memory["q"], 0, (col, row, head, batch))
        np.testing.assert_array_equal(found[0, 0], padded[batch, head, row : row + 64, col : col + 32])


def test_boxes_of_packed_sequences(v3_spec):
    """Every tile of every sequence: rows of that sequence, and zeros past its end."""
    planned = with_own_o(v3_spec(TILE, layout="thd", head_dim=64))
    lengths = (100, 0, 1, 64, 65)
    tokens = sum(lengths) + 7  # rows of no sequence
    shape = Shape(len(lengths), 100, 100, 3, 3, tokens, tokens)
    made = make(planned, shape, dict.fromkeys(TENSORS, (tokens, 3, 64)))
    tensor = made.memory["q"].reshape(tokens, 3, 64)
    for name in TENSORS:
        packed = made.arguments.maps[name]
        assert packed.box == (64, 64, 1, 1, 1) and packed.swizzle == 128
        starts = np.cumsum([0, *lengths])
        for start, end in pairwise(starts):
            for head in range(3):
                for row in range(0, 128, 64):  # beyond the shorter sequences
                    left = end - start - row
                    found = load(packed, made.memory[name], 0, (0, FAR - left, int(end), FAR, head))
                    wanted = np.zeros((64, 64), np.uint16)
                    some = tensor[start + row : max(start + row, min(end, start + row + 64)), head]
                    wanted[: len(some)] = some
                    np.testing.assert_array_equal(found[0, 0, 0], wanted)


def test_packed_slices_of_one_fused_tensor(v3_spec):
    """Row strides beyond a row's own elements, and a head dimension of one head whose stride is odd."""
    planned = with_own_o(v3_spec(TILE, layout="thd", head_dim=64))
    fused = np.arange(1, 20 * 6 * 64 + 1, dtype=np.uint16)
    shape = Shape(1, 20, 20, 1, 1, 20, 20)
    strides = dict.fromkeys(TENSORS, Strides(0, 6 * 64, 5))
    made = arguments(main_kernel(planned), shape, launch(planned, shape, 1.0), strides)
    found = load(made.maps["k"], fused, 4 * 64, (0, FAR - 20, 20, FAR, 0))
    np.testing.assert_array_equal(found[0, 0, 0, :20], fused.reshape(20, 6, 64)[:, 4])
    assert not found[0, 0, 0, 20:].any()


@pytest.mark.parametrize("group", [1, 4, 16, 64])
def test_boxes_of_query_heads_that_share_a_kv_head(v3_spec, group):
    """Rows of a box are the heads of one group for query after query."""
    planned = with_own_o(v3_spec(TILE | {"pack_gqa": True}, head_dim=64))
    shape = Shape(2, 30, 50, 2 * group, 2)
    made = make(
        planned,
        shape,
        {
            "q": (2, 30, 2 * group, 64),
            "k": (2, 50, 2, 64),
            "v": (2, 50, 2, 64),
            "out": (2, 30, 2 * group, 64),
        },
    )
    q = made.memory["q"].reshape(2, 30, 2, group, 64)
    queries = 64 // group
    assert made.arguments.maps["q"].box == (64, group, queries, 1, 1)
    assert made.arguments.maps["k"].box == (64, 64, 1, 1)
    for row in (0, queries, 30 - 1):
        found = load(made.arguments.maps["q"], made.memory["q"], 0, (0, 0, row, 1, 1))[0, 0]
        wanted = np.zeros((queries, group, 64), np.uint16)
        some = q[1, row : row + queries, 1]
        wanted[: len(some)] = some
        np.testing.assert_array_equal(found, wanted)


def test_a_cta_of_a_cluster_loads_its_share_of_keys_and_values(v3_spec):
    planned = with_own_o(v3_spec(TILE | {"cluster": 2}, head_dim=64))
    made = make(planned, Shape(1, 9, 9, 1, 1), dict.fromkeys(TENSORS, (1, 9, 1, 64)))
    rows = {name: own.box[1] for name, own in made.arguments.maps.items()}
    assert rows == {"q": 64, "k": 32, "v": 32, "out": 64}


@pytest.mark.parametrize(
    ("strides", "said"),
    [(Strides(0, 68, 64), "136 bytes; allowed: multiples of 16"), (Strides(0, 64, 2**39), "below 2\\*\\*40")],
)
@pytest.mark.parametrize("name", ["q", "k", "v", "out"])
def test_what_tma_cannot_describe_is_refused_by_name(v3_spec, name, strides, said):
    planned, shape = with_own_o(v3_spec(TILE, head_dim=64)), Shape(1, 8, 8, 2, 2)
    own = dict.fromkeys(TENSORS, Strides(0, 128, 64)) | {name: strides}
    with pytest.raises(PlanError, match=rf"^t: {name}: tensor map of bf16 .*{said}"):
        arguments(main_kernel(planned), shape, launch(planned, shape, 1.0), own)


def test_strides_of_a_single_element_need_not_be_possible(v3_spec):
    planned, shape = with_own_o(v3_spec(TILE, head_dim=64)), Shape(1, 8, 8, 1, 1)
    own = dict.fromkeys(TENSORS, Strides(3, 64, 2**60))
    for tensor_map in arguments(main_kernel(planned), shape, launch(planned, shape, 1.0), own).maps.values():
        tensor_map.check(address=0)


@pytest.mark.parametrize("layout", ["bshd", "bhsd", "thd"])
def test_extents_reach_from_the_first_to_the_last_element(v3_spec, layout):
    planned = with_own_o(v3_spec(TILE, layout=layout, head_dim=64, head_dim_v=128))
    if layout == "thd":
        shape = Shape(3, 20, 30, 4, 2, 50, 60)
        sizes = {"q": (50, 4, 64), "k": (60, 2, 64), "v": (60, 2, 128), "out": (50, 4, 128)}
        lse = 4 * 50
    else:
        shape = Shape(3, 20, 30, 4, 2)
        middle = {"bshd": lambda n, h: (n, h), "bhsd": lambda n, h: (h, n)}[layout]
        sizes = {
            "q": (3, *middle(20, 4), 64),
            "k": (3, *middle(30, 2), 64),
            "v": (3, *middle(30, 2), 128),
            "out": (3, *middle(20, 4), 128),
        }
        lse = 3 * 4 * 20
    extents = make(planned, shape, sizes).arguments.extents
    assert {name: extents[name] for name in sizes} == {name: 2 * np.prod(own) for name, own in sizes.items()}
    assert extents["lse"] == 4 * lse
    assert extents["cu_seqlens_q"] == extents["cu_seqlens_k"] == 16
