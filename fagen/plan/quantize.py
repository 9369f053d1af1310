"""The kernels that quantise q, k or v to 8 bits: their numbers, their arguments, their launches.

A block of rows is a CTA's unit of work. One descale for each block takes one kernel, which reads the tensor
once; one for each head, or one for all, takes two: `amax` finds the largest magnitudes, `given` uses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fagen.errors import PlanError
from fagen.hw.arch import Arch
from fagen.hw.dtypes import DTYPES
from fagen.plan import params
from fagen.plan.arguments import FLOAT_BYTES, Arguments
from fagen.plan.ir import Buffer
from fagen.plan.launch import INT32_MAX, Grid
from fagen.plan.maps import Operand, Strides
from fagen.plan.params import Param

BLOCK_ROWS = 128  # as problem.fp8.block
HEAD_DIMS = tuple(range(32, 257, 32))
LANES = 4  # that share a row: quantize/part.cuh
COLUMN_PADDING = 16  # bytes: quantize/store.cuh
_FLOATS_PER_THREAD = 32  # of a block; a thread has a whole share of a row at least
_REGISTERS = 64  # of a thread with so many floats

Step = Literal["block", "amax", "given"]


@dataclass(frozen=True)
class QuantizeKernel:
    """One kernel, for tensors of one head dimension and dtype."""

    arch: Arch
    dtype_in: str  # "fp16" | "bf16"
    dtype: str  # "e4m3" | "e5m2"
    head_dim: int
    step: Step
    hadamard: bool = False  # transforms rows first
    transposed: bool = False  # writes (batch, heads, head_dim, rows)

    @property
    def symbol(self) -> str:
        """The kernel's extern "C" name."""
        features = [name for name in ("hadamard", "transposed") if getattr(self, name)]
        parts = (self.step, self.dtype_in, self.dtype, f"d{self.head_dim}", *features)
        return f"fagen_quantize_{'_'.join(parts)}"

    @property
    def threads(self) -> int:
        """Threads per CTA."""
        rows_of_thread = max(1, _FLOATS_PER_THREAD * LANES // self.head_dim)
        return LANES * BLOCK_ROWS >> rows_of_thread.bit_length() - 1

    @property
    def ctas_per_sm(self) -> int:
        """As many as registers, and shared memory, have room for."""
        floats = BLOCK_ROWS * self.head_dim // self.threads
        registers = _REGISTERS if floats <= _FLOATS_PER_THREAD else 2 * _REGISTERS
        by_registers = self.arch.registers_per_sm // (registers * self.threads)
        by_smem = self.arch.smem_per_sm // (self.smem_bytes + self.arch.smem_reserved_per_cta)
        return max(1, min(by_registers, by_smem))

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Shared memory: two blocks, on their way; columns, signs and the warps' largest magnitudes."""
        stage = BLOCK_ROWS * self.head_dim * DTYPES[self.dtype_in].bytes
        wanted = [Buffer("blocks", 0, BLOCK_ROWS, self.head_dim, 2, 2 * stage)]
        at = 2 * stage
        if self.transposed:
            column = BLOCK_ROWS + COLUMN_PADDING
            wanted.append(Buffer("columns", at, self.head_dim, column, 1, self.head_dim * column))
            at += wanted[-1].bytes
        if self.hadamard:
            wanted.append(Buffer("signs", at, 1, self.head_dim, 1, 2 * self.head_dim))
            at += wanted[-1].bytes
        if self.step != "given":
            warps = self.threads // 32
            wanted.append(Buffer("maxima", at, 1, warps, 2, 2 * FLOAT_BYTES * warps))
        return tuple(wanted)

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory per CTA."""
        return self.buffers[-1].offset + self.buffers[-1].bytes

    @property
    def params(self) -> tuple[Param, ...]:
        """The fields of its struct."""
        is_written = self.step != "amax"
        out = "[batch, heads, head_dim, rows]" if self.transposed else "like x"
        per_block = self.step == "block"
        descale = "[batch, heads, blocks]" if per_block else "[scales]"
        pointers = {
            Param("x", "const T*", "what to quantise"): True,
            Param("out", "F8*", out): is_written,
            Param("descale", "float*", f"{descale}: x is out times these"): is_written,
            Param("amax", "uint32_t*", "[scales]: largest magnitudes, floats as bits"): self.step == "amax",
            Param("amax", "const float*", "[scales]: largest magnitudes"): self.step == "given",
        }
        counts = (
            Param("batch", "int32_t", "sequences"),
            Param("heads", "int32_t", "of x"),
            Param("rows", "int32_t", "of a head"),
            Param("blocks", "int32_t", "ceil(rows / 128)"),
        )
        return (
            *(param for param, is_there in pointers.items() if is_there),
            *params.strides("x"),
            *(params.strides("out") if is_written else ()),
            *(() if per_block else params.strides("amax", ("batch", "head"))),
            *counts,
            *(() if per_block else (Param("group", "int32_t", "neighbouring heads that share a scale"),)),
        )


@dataclass(frozen=True)
class Scales:
    """Which heads share a scale: `group` neighbours; and how to step from one to the next, 0: one for all."""

    batch: int
    head: int
    group: int
    count: int  # of all


def kernel(
    arch: Arch,
    dtype_in: str,
    dtype: str,
    head_dim: int,
    step: Step,
    hadamard: bool = False,
    transposed: bool = False,
) -> QuantizeKernel:
    """A kernel that fits `arch`. Raises PlanError."""
    made = QuantizeKernel(arch, dtype_in, dtype, head_dim, step, hadamard, transposed)
    if "mma_sync_fp8" not in arch.features:
        raise PlanError(f"{made.symbol}: {arch.name} has no 8-bit floats; allowed: sm_89 and newer")
    if made.smem_bytes > arch.smem_per_cta:
        raise PlanError(
            f"{made.symbol}: wants {made.smem_bytes} bytes of shared memory; allowed on {arch.name}: "
            f"{arch.smem_per_cta}"
        )
    return made


def arguments(
    kernel: QuantizeKernel, x: Operand, out: Strides, out_extent: int, scales: Scales, sms: int
) -> tuple[Grid, Arguments]:
    """The launch on a GPU with `sms` SMs: as many CTAs as run at a time, or as there are blocks.

    `out` is the strides of what is written, `out_extent` its elements. Raises PlanError for more blocks or
    rows than 32-bit integers hold.
    """
    blocks = -(-x.rows // BLOCK_ROWS)
    count = x.batch * x.heads * blocks
    for name, value, most in (
        ("rows", x.rows, INT32_MAX - BLOCK_ROWS),
        (f"batch * heads * ceil(rows / {BLOCK_ROWS})", count, INT32_MAX),
    ):
        if value > most:
            raise PlanError(f"{kernel.symbol}: {name} is {value:,}; allowed: up to {most:,}")
    numbers = {
        **_strides("x", x.strides),
        **_strides("out", out),
        "amax_batch_stride": scales.batch,
        "amax_head_stride": scales.head,
        "batch": x.batch,
        "heads": x.heads,
        "rows": x.rows,
        "blocks": blocks,
        "group": scales.group,
    }
    descales = count if kernel.step == "block" else scales.count
    extents = {
        "x": x.extent * DTYPES[kernel.dtype_in].bytes,
        "out": out_extent,
        "descale": FLOAT_BYTES * descales,
        "amax": FLOAT_BYTES * scales.count,
    }
    grid = Grid(min(count, sms * kernel.ctas_per_sm), 1)
    return grid, Arguments(kernel.params, tuple(extents), numbers, {}, extents)


def _strides(name: str, strides: Strides) -> dict[str, int | float]:
    return {f"{name}_{axis}_stride": value for axis, value in strides._asdict().items()}
