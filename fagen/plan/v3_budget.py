"""What the v3 kernel asks of an SM: one CTA of a load warpgroup and Br/64 math warpgroups, each with 64 rows.

The register terms follow wgmma's accumulators (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16"):
64 rows of n fp32 columns take n/2 registers of each of 128 threads, the same as a 16-bit operand n/4, as an
8-bit one n/8. They estimate what ptxas needs without spilling; the build reports what it took.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from fagen.hw.arch import Arch
from fagen.plan.budget import SMEM_CTA, THREADS, Budget, Knob, Resource
from fagen.plan.ir import Tiling
from fagen.plan.symbols import (
    Bc,
    Br,
    bytes_,
    d,
    dv,
    load_registers,
    math_registers,
    q_stages,
    stages,
)

# Maximum, sum and scale of two rows; descriptors, barriers, counters and bounds. Fitted: 25 to 28 tell what
# ptxas (NVRTC 13.5) builds without spills from what it does not, tests/plan/test_v3.py.
ROWS_AND_ADDRESSES = 26
ROWS_AND_ADDRESSES_FP8 = 30  # and descales
SOFTCAP_REGISTERS_FP8 = 16  # and scores on their way through a soft cap

# What ptxas wants beside the accumulator of a wgmma, within what a thread has before setmaxnreg. With less it
# refuses the kernel.
WGMMA_REGISTERS = 30

REGISTERS = "registers per math thread"
WIDEST = "registers per thread at launch, for the widest product"
REGISTER_FILE = "register file after setmaxnreg"
LOAD_THREADS = 128


@cache
def _resources(
    own_o: bool, is_fp8: bool, head_descales: bool, transposes: bool, promotes: bool, softcap: bool
) -> tuple[Resource, ...]:
    return (
        Resource(
            SMEM_CTA,
            "bytes",
            (
                ("Q tiles", Br * d * bytes_ * q_stages),
                ("K ring", Bc * d * bytes_ * stages),
                ("V ring", Bc * dv * bytes_ * stages),
                *((("V^T ring", Bc * dv * bytes_ * stages),) if transposes else ()),
                *((("O tile", Br * dv * (2 if is_fp8 else bytes_)),) if own_o else ()),
                ("mbarriers, full and empty, of Q, K and V", 16 * q_stages + 32 * stages),
                *((("mbarriers of V^T, end of V", 24 * stages),) if transposes else ()),
                ("work item of each Q tile", 8 * q_stages),
                *((("its descales", 8 * q_stages),) if head_descales else ()),
            ),
            lambda arch, _: arch.smem_per_cta,
        ),
        Resource(
            REGISTERS,
            "registers",
            (
                ("O accumulator", dv / 2),
                *((("O sums", dv / 2),) if promotes else ()),
                ("S accumulator", Bc / 2),
                *((("soft cap", sp.Integer(SOFTCAP_REGISTERS_FP8)),) if is_fp8 and softcap else ()),
                ("P operand", Bc / (8 if is_fp8 else 4)),
                (
                    "rows, addresses and counters",
                    sp.Integer(ROWS_AND_ADDRESSES_FP8 if is_fp8 else ROWS_AND_ADDRESSES),
                ),
            ),
            lambda _, at: int(at[math_registers]),
        ),
        Resource(
            WIDEST,
            "registers",
            (
                ("accumulator", sp.Max(dv, Bc) / 2),
                ("operands and addresses", sp.Integer(WGMMA_REGISTERS)),
            ),
            lambda arch, at: register_file(arch, int(at[Br]) // 64) // (LOAD_THREADS + 2 * int(at[Br])),
        ),
        Resource(
            REGISTER_FILE,
            "registers",
            (
                ("load warps", LOAD_THREADS * load_registers),
                ("math warps", 2 * Br * math_registers),
            ),
            lambda arch, at: register_file(arch, int(at[Br]) // 64),
        ),
        Resource(
            THREADS,
            "threads",
            (("load warps", sp.Integer(LOAD_THREADS)), ("math warps", 2 * Br)),
            lambda arch, _: arch.max_threads_per_sm,
        ),
    )


def register_file(arch: Arch, warpgroups: int) -> int:
    """Registers that a CTA with so many math warpgroups starts with: setmaxnreg moves them between its warps.

    They are handed out per thread in eights.
    """
    threads = LOAD_THREADS + 128 * warpgroups
    share = min(arch.max_registers_per_thread, arch.registers_per_sm // threads)
    return threads * (share // 8 * 8)


def _knobs(tiling: Tiling) -> tuple[Knob, ...]:
    load = tiling.load_registers
    return (
        Knob("tile.q", Br, range(64, tiling.q + 1, 64), tiling.q),
        Knob("tile.kv", Bc, range(16, tiling.kv + 1, 16), tiling.kv),
        Knob("stages.q", q_stages, range(1, tiling.q_stages + 1), tiling.q_stages),
        Knob("stages.kv", stages, range(2, tiling.stages + 1), tiling.stages),
        Knob("roles.load.registers", load_registers, range(24, load + 1, 8), load),
        Knob("roles.math.registers", math_registers, range(24, 241, 8), tiling.math_registers),
    )


def _of(tiling: Tiling) -> tuple[Resource, ...]:
    return _resources(
        tiling.own_o,
        tiling.is_fp8,
        tiling.head_descales,
        tiling.transposers > 0,
        tiling.promote_every is not None,
        tiling.softcap,
    )


BUDGET = Budget(_of, _knobs, REGISTERS)
