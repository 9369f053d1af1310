"""QuantizeKernel → Source: prints templates/quantize/quantize.cu.j2."""

from __future__ import annotations

from fagen.emit.env import environment
from fagen.emit.source import Source
from fagen.hw.dtypes import DTYPES
from fagen.plan import params
from fagen.plan.quantize import BLOCK_ROWS, QuantizeKernel

_TEMPLATE = "quantize/quantize.cu.j2"
_TITLES = {
    "block": "quantises each block of rows by its own largest magnitude",
    "amax": "finds the largest magnitudes that tensors are quantised by",
    "given": "quantises by largest magnitudes found before",
}


def render(kernel: QuantizeKernel) -> Source:
    """A kernel as CUDA C++; the same one always prints the same text."""
    return Source(
        name=kernel.symbol,
        symbol=kernel.symbol,
        arch=kernel.arch.name,
        text=environment().get_template(_TEMPLATE).render(_context(kernel)),
        threads=kernel.threads,
        smem_bytes=kernel.smem_bytes,
    )


def _context(kernel: QuantizeKernel) -> dict[str, object]:
    headers = {
        "base/fp8.cuh": True,
        "base/types.cuh": True,
        "ptx/atomic.cuh": kernel.step == "amax",
        "ptx/cp_async.cuh": True,
        "ptx/global.cuh": True,
        "ptx/shared.cuh": True,
        "quantize/amax.cuh": True,
        "quantize/blocks.cuh": True,
        "quantize/hadamard.cuh": kernel.hadamard,
        "quantize/part.cuh": True,
        "quantize/signs.cuh": kernel.hadamard,
        "quantize/store.cuh": kernel.step != "amax",
    }
    return {
        "title": _TITLES[kernel.step],
        "symbol": kernel.symbol,
        "arch": kernel.arch,
        "headers": [name for name, is_used in headers.items() if is_used],
        "dtype_in": DTYPES[kernel.dtype_in],
        "dtype": DTYPES[kernel.dtype],
        "params": kernel.params,
        "params_bytes": params.struct_bytes(kernel.params),
        "rows": BLOCK_ROWS,
        "head_dim": kernel.head_dim,
        "threads": kernel.threads,
        "ctas_per_sm": kernel.ctas_per_sm,
        "buffers": kernel.buffers,
        "step": kernel.step,
        "hadamard": kernel.hadamard,
        "transposed": kernel.transposed,
        "norm": f"{kernel.head_dim**-0.5 if kernel.hadamard else 1.0!r}f",  # of an orthogonal matrix
    }
