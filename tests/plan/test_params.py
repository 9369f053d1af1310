"""The parameter struct of every kind of kernel: laid out as C does, packed where device code looks."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import pairwise

import pytest

from fagen.plan import params
from fagen.plan.params import ADDRESSES, MAP, forward, offsets, pack, struct_bytes
from fagen.plan.planner import plan

SIZES = {MAP: 128, "int64_t": 8, "int32_t": 4, "float": 4}
KINDS = {
    "v2": {},
    "v3": {"own_o": True},
    "v3 without a buffer for O": {"own_o": False},
    "v3 packed": {"own_o": True, "layout": "thd"},
    "v3 packed without a buffer for O": {"own_o": False, "layout": "thd"},
    "v3 pack_gqa": {"own_o": True, "schedule": {"pack_gqa": True}},
}


def make_plan(v2_spec, v3_spec, **options):
    if "own_o" not in options:
        return plan(v2_spec())
    own_o = options.pop("own_o")
    planned = plan(v3_spec(**options))
    return replace(planned, tiling=replace(planned.tiling, own_o=own_o))


@pytest.fixture(scope="module", params=KINDS)
def plan_of_kind(request, v2_spec, v3_spec):
    return make_plan(v2_spec, v3_spec, **KINDS[request.param])


@pytest.fixture(scope="module")
def fields(plan_of_kind):
    return forward(plan_of_kind)


def size(param: params.Param) -> int:
    return 8 if param.is_pointer else SIZES[param.ctype]


def test_every_field_follows_the_one_before_so_that_no_padding_can_differ(fields):
    at = offsets(fields)
    assert list(at) == [param.name for param in fields]
    assert at[fields[0].name] == 0
    for before, param in pairwise(fields):
        assert at[param.name] == at[before.name] + size(before)
        assert at[param.name] % min(size(param), 64) == 0


def test_the_struct_ends_where_its_alignment_lets_the_next_one_start(fields):
    end = offsets(fields)[fields[-1].name] + size(fields[-1])
    align = 64 if fields[0].ctype == MAP else 8
    assert struct_bytes(fields) % align == 0
    assert end <= struct_bytes(fields) < end + align


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("v2", 5 * 8 + 12 * 8 + 8 * 4),
        ("v3", 576),  # 4 * 128 + 8 + 8 * 4, and 24 to the next 64
        ("v3 without a buffer for O", 512),  # 3 * 128 + 2 * 8 + 3 * 8 + 8 * 4, and 56
        ("v3 packed", 640),  # 4 * 128 + 4 * 8 + 10 * 4, and 56
    ],
)
def test_sizes_as_the_compiler_has_them(v2_spec, v3_spec, kind, size):
    assert struct_bytes(forward(make_plan(v2_spec, v3_spec, **KINDS[kind]))) == size


def test_pointers_are_neighbours_and_have_names_of_addresses(fields):
    pointers = [i for i, param in enumerate(fields) if param.is_pointer]
    assert pointers == list(range(pointers[0], pointers[-1] + 1))
    assert {fields[i].name for i in pointers} <= set(ADDRESSES)


def test_names_are_unique_and_explained(fields):
    assert len({param.name for param in fields}) == len(fields)
    assert all(param.meaning for param in fields)


def test_packed_values_lie_at_their_offsets(fields):
    values = {
        param.name: bytes([i]) * 128 if param.ctype == MAP else i + 0.5 if param.ctype == "float" else i
        for i, param in enumerate(fields, 1)
    }
    block = pack(fields, values | {"of no field": 0})
    assert len(block) == struct_bytes(fields)
    codes = {MAP: "128s", "int64_t": "q", "int32_t": "i", "float": "f"}
    for param in fields:
        code = "Q" if param.is_pointer else codes[param.ctype]
        assert struct.unpack_from(f"<{code}", block, offsets(fields)[param.name]) == (values[param.name],)
