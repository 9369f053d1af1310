"""Runs one of the small kernels of runtime_cases.cu, which are compiled once, together."""

from __future__ import annotations

import functools
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fagen.emit.source import Source
from fagen.emu import kernel, settings
from fagen.emu.kernel import Kernel, Range, SharedBuffer
from fagen.emu.run import run
from fagen.errors import EmulatorError

TEXT = (Path(__file__).parent / "runtime_cases.cu").read_text()
NAMES = tuple(re.findall(r"^CASE\((\w+)\)", TEXT, re.MULTILINE))
SYMBOL = "runtime_cases"
THREADS = 64
WORDS = 1024
SEEDS = range(5)


@functools.cache
def _kernel() -> Kernel:
    table = ", ".join(NAMES)
    text = (
        f"{TEXT}\nstatic void (*const kCases[])(const Case&) = {{{table}}};\n"
        f'extern "C" __global__ void {SYMBOL}(const __grid_constant__ Params p) {{\n'
        "  kCases[p.which](Case{p});\n}\n"
    )
    source = Source(SYMBOL, SYMBOL, "sm_80", text, threads=THREADS, smem_bytes=4096)
    return kernel.load(source, (SharedBuffer("tile", 0, 4096),))


def run_case(
    name: str,
    given: np.ndarray | None = None,
    *,
    seed: int = 0,
    grid: int = 1,
    threads: int = THREADS,
    **options: Any,
) -> np.ndarray:
    """The words that case `name` leaves in its output; it is given WORDS words, by default 0, 1, 2, ..."""
    given = np.arange(WORDS, dtype=np.uint32) if given is None else given
    copy, out = _aligned(given.size), _aligned(given.size)
    copy[:] = given
    params = struct.pack("@PPii", copy.ctypes.data, out.ctypes.data, given.size, NAMES.index(name))
    ranges = [
        Range("in", copy.ctypes.data, copy.nbytes),
        Range("out", out.ctypes.data, out.nbytes, writable=True),
    ]
    loaded = _kernel()
    loaded = replace(loaded, source=replace(loaded.source, threads=threads))
    run(loaded, (grid, 1, 1), params, ranges, settings=replace(settings.current(), seed=seed, **options))
    return out


def _aligned(words: int) -> np.ndarray:
    """Zeros at a multiple of 16 bytes, which numpy does not promise."""
    room = np.zeros(words + 4, np.uint32)
    start = -room.ctypes.data % 16 // 4
    return room[start : start + words]


def objects(name: str, kind: str, *words: str) -> None:
    """Case `name` must fail under every seed, with an error of that kind whose message has these words."""
    for seed in SEEDS:
        with pytest.raises(EmulatorError) as caught:
            run_case(name, seed=seed)
        text = str(caught.value)
        assert text.startswith(f"{SYMBOL}: {kind} in the emulator, seed {seed}\n"), text
        for word in words:
            assert word in text, text


def accepts(name: str, expected: np.ndarray | None = None) -> None:
    """Case `name` must pass under every seed; `expected` is how its output starts."""
    for seed in SEEDS:
        out = run_case(name, seed=seed)
        if expected is not None:
            np.testing.assert_array_equal(out[: expected.size], expected)


def line_of(name: str, text: str) -> str:
    """`kernel.cu:<line>` of the first line of case `name` that holds `text`."""
    lines = TEXT.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"CASE({name})"))
    return f"kernel.cu:{next(i for i in range(first, len(lines)) if text in lines[i]) + 1}"
