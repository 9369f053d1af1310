"""The parameter struct of every kind of kernel: laid out as C does, packed where device code looks."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import pairwise

import pytest

from fagen.plan import params
from fagen.plan.kernels import kernels
from fagen.plan.params import BACKWARD, FORWARD, MAP, offsets, pack, struct_bytes
from fagen.plan.planner import plan

SIZES = {MAP: 128, "int64_t": 8, "int32_t": 4, "uint32_t": 4, "float": 4}
EVERYTHING = {"layout": "thd", "softcap": 30.0, "dropout": True, "deterministic": True}
E4M3 = {"dtype": "e4m3", "passes": ("forward",)}
BACKWARDS = ("backward_prepare", "backward", "backward_convert")
KINDS = {
    "v2": {},
    "v2 with everything": EVERYTHING,
    **{f"v2 {name}": {"kernel": name} for name in BACKWARDS},
    **{f"v2 {name} with everything": {"kernel": name, **EVERYTHING} for name in BACKWARDS},
    "v3": {"own_o": True},
    "v3 without a buffer for O": {"own_o": False},
    "v3 packed": {"own_o": True, "layout": "thd"},
    "v3 packed without a buffer for O": {"own_o": False, "layout": "thd"},
    "v3 pack_gqa": {"own_o": True, "schedule": {"pack_gqa": True}},
    "v3 e4m3": {"own_o": True, **E4M3},
    "v3 e4m3 packed": {"own_o": False, "layout": "thd", **E4M3},
    "v3 e4m3 in blocks": {"own_o": False, "fp8": {"scale": "block"}, **E4M3},
}


def fields_of(v2_spec, v3_spec, kernel="forward", **options):
    if "own_o" in options:
        own_o = options.pop("own_o")
        planned = plan(v3_spec(**options))
        planned = replace(planned, tiling=replace(planned.tiling, own_o=own_o))
    else:
        planned = plan(v2_spec(**options), direction=kernel.partition("_")[0])
    return next(one for one in kernels(planned) if one.name == kernel).params


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def fields(kind, v2_spec, v3_spec):
    return fields_of(v2_spec, v3_spec, **KINDS[kind])


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
        ("v2 with everything", 8 * 8 + 12 * 8 + 7 * 4 + 4 + 4 * 4),
        ("v2 backward_prepare", 6 * 8 + 6 * 8 + 7 * 4 + 4),
        ("v2 backward", 8 * 8 + 18 * 8 + 11 * 4 + 4),
        ("v2 backward with everything", 12 * 8 + 18 * 8 + 10 * 4 + 5 * 4 + 4),
        ("v2 backward_convert", 2 * 8 + 3 * 8 + 6 * 4 + 4 + 4),
        ("v3", 576),  # 4 * 128 + 8 + 8 * 4, and 24 to the next 64
        ("v3 without a buffer for O", 512),  # 3 * 128 + 2 * 8 + 3 * 8 + 8 * 4, and 56
        ("v3 packed", 640),  # 4 * 128 + 4 * 8 + 10 * 4, and 56
        ("v3 e4m3", 704),  # v3's, 3 * 8 and 6 * 8, of k 4 * 8, and 48
    ],
)
def test_sizes_as_the_compiler_has_them(v2_spec, v3_spec, kind, size):
    assert struct_bytes(fields_of(v2_spec, v3_spec, **KINDS[kind])) == size


def test_pointers_are_neighbours_and_have_names_of_addresses(kind, fields):
    pointers = [i for i, param in enumerate(fields) if param.is_pointer]
    assert pointers == list(range(pointers[0], pointers[-1] + 1))
    assert {fields[i].name for i in pointers} <= set(BACKWARD if "backward" in kind else FORWARD)


def test_what_is_written_is_no_input(fields):
    inputs = {"q", "k", "v", "lse", "dout", "dlse", "seed", "cu_seqlens_q", "cu_seqlens_k"}
    written = {param.name.removesuffix("_map") for param in fields if param.is_written}
    assert written and (not written & inputs or (written & inputs == {"lse"} and "dq_sum" not in written))


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
    codes = {MAP: "128s", "int64_t": "q", "int32_t": "i", "uint32_t": "I", "float": "f"}
    for param in fields:
        code = "Q" if param.is_pointer else codes[param.ctype]
        assert struct.unpack_from(f"<{code}", block, offsets(fields)[param.name]) == (values[param.name],)
