"""Tiny hand-written kernels, so that these tests rest on no template, and processes that build them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fagen.compile.cache import Cache
from fagen.compile.nvrtc import compile_source
from fagen.emit.source import Source


def source(
    body: str = "p[threadIdx.x] = 1;", *, number: int = 0, head: str = "", bounds: str = "", **fields: Any
) -> Source:
    """A kernel over `float* p, int n`; different `number`s are different kernels."""
    symbol = f"tiny{number}_fwd"
    text = f'{head}\nextern "C" __global__ void {bounds} {symbol}(float* p, int n) {{\n{body}\n}}\n'
    defaults = {"name": f"tiny{number}", "arch": "sm_80", "threads": 32, "smem_bytes": 0}
    return Source(symbol=symbol, text=text, **{**defaults, **fields})


def build_all(start, root: str, numbers: range, results) -> None:
    """Body of a process: builds every kernel at once with others, tells which ones it compiled itself."""
    start.wait()
    artifacts = [compile_source(source(number=number), Cache(Path(root))) for number in numbers]
    results.put([(artifact.name, artifact.cached, artifact.cubin) for artifact in artifacts])
