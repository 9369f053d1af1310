"""The parameter block: naturally aligned, pointers first, one layout for host and device."""

import struct

from fagen.plan.params import FORWARD, POINTERS, struct_bytes, struct_format

SIZES = {"int64_t": 8, "int32_t": 4, "float": 4}


def test_the_leading_fields_are_the_pointers():
    assert [p.ctype.endswith("*") for p in FORWARD] == [True] * POINTERS + [False] * (len(FORWARD) - POINTERS)


def test_every_field_is_naturally_aligned_so_that_no_padding_can_differ():
    offset = 0
    for param in FORWARD:
        size = 8 if param.ctype.endswith("*") else SIZES[param.ctype]
        assert offset % size == 0, param.name
        offset += size
    assert struct_bytes() == offset
    assert offset % 8 == 0  # the struct's own alignment adds no tail


def test_names_are_unique_and_explained():
    assert len({p.name for p in FORWARD}) == len(FORWARD)
    assert all(p.meaning for p in FORWARD)


def test_the_format_packs_one_value_per_field():
    packed = struct.pack(struct_format(), *(0.5 if p.ctype == "float" else 7 for p in FORWARD))
    assert len(packed) == struct_bytes()
