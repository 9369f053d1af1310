"""wgmma: every N, operand source, majorness, swizzle and type, on integers small enough for exact sums."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from layouts import accumulators, core_fragments, encoded, operand, warpgroup
from machine import Machine, source

SMEM = 64 * 1024
SWIZZLES = (0, 32, 64, 128)


class Form(NamedTuple):
    a: str  # type
    b: str
    registers: bool  # A comes from
    a_mn_major: bool
    b_mn_major: bool

    def __str__(self) -> str:
        majors = "-".join("mn" if mn else "k" for mn in (self.a_mn_major, self.b_mn_major))
        return f"{self.a}-{self.b}-{'rs' if self.registers else 'ss'}-{majors}"


# In the order of wgmma.cu.
_16 = [(False, *major) for major in product((False, True), repeat=2)] + [
    (True, False, b) for b in (False, True)
]
FORMS = [
    *(Form(dtype, dtype, *rest) for dtype in ("fp16", "bf16") for rest in _16),
    *(
        Form(a, b, registers, False, False)
        for a in ("e4m3", "e5m2")
        for b in ("e4m3", "e5m2")
        for registers in (False, True)
    ),
]
# These meet every N with every swizzle; the others every N, with one swizzle after the other.
WITH_EVERY_SWIZZLE = ("fp16", "e4m3")


def defines(machine: Machine, form: int) -> dict[str, object]:
    return {"FORMS": 1 << form if machine.compiles_slowly else (1 << len(FORMS)) - 1, "MAX_N": 256}


@pytest.fixture(scope="module")
def compiled(machine: Machine) -> Machine:
    if machine.compiles_slowly:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            sources = (source("wgmma", 128, SMEM, defines(machine, form)) for form in range(len(FORMS)))
            list(pool.map(machine.compile, sources))
    return machine


@pytest.mark.parametrize("number", range(len(FORMS)), ids=[str(form) for form in FORMS])
def test_wgmma_multiplies_exactly(compiled: Machine, number):
    form = FORMS[number]
    random = np.random.default_rng(number)
    cases, images, fragments, before, expected = [], [], [], [], []
    image_bytes = words = floats = 0
    for n, swizzle in product(range(8, 257, 8), SWIZZLES):
        if not (form.a == form.b and form.a in WITH_EVERY_SWIZZLE) and SWIZZLES[n // 8 % 4] != swizzle:
            continue
        size = 2 if form.a in ("fp16", "bf16") else 1
        k_major = not form.b_mn_major or not (form.registers or form.a_mn_major)
        k = (max(swizzle, 32) if k_major and swizzle else 64) // size
        steps = k * size // 32
        a, b = random.integers(-4, 5, (64, k)), random.integers(-4, 5, (n, k))
        c = random.integers(-64, 65, (64, n))
        accumulate = n // 8 % 2
        dense_along_k = bool(n // 16 % 2)
        a_bits, b_bits = encoded(a, form.a), encoded(b, form.b)
        right = operand(b_bits, swizzle, form.b_mn_major, dense_along_k)
        left_fields, image, at = [0] * 5, right.image, 0
        if form.registers:
            for step in np.split(a_bits, steps, axis=1):
                held = warpgroup(core_fragments, step)
                fragments.append(np.ascontiguousarray(held).view(np.uint32)[..., 0].T.ravel())
        else:
            left = operand(a_bits, swizzle, form.a_mn_major, not dense_along_k)
            left_fields, at = left.fields(0), -(-left.image.size // 1024) * 1024
            image = np.concatenate([np.pad(left.image, (0, at - left.image.size)), right.image])
        cases.append(
            [
                n,
                number,
                steps,
                accumulate,
                image_bytes,
                image.size,
                words,
                floats,
                *left_fields,
                *right.fields(at),
            ]
        )
        images.append(image)
        image_bytes += image.size
        words += 512 * steps * form.registers
        before.append(warpgroup(accumulators, c.astype(np.float32)).T.ravel())
        floats += 64 * n
        expected.append(warpgroup(accumulators, (a @ b.T + accumulate * c).astype(np.float32)).T.ravel())
    found = np.full(floats, np.nan, np.float32)
    compiled.run(
        "wgmma",
        [
            np.array(cases, np.int32),
            np.concatenate(images),
            np.concatenate(fragments or [np.zeros(4, np.uint32)]),
            np.concatenate(before),
            found,
        ],
        grid=len(cases),
        smem_bytes=SMEM,
        defines=defines(compiled, number),
    )
    parts = np.split(found, np.cumsum([e.size for e in expected])[:-1])
    wrong = [
        c[:4] + c[8:]
        for c, got, want in zip(cases, parts, expected, strict=True)
        if not np.array_equal(got, want)
    ]
    assert not wrong
