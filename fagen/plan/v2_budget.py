"""What the v2 kernel asks of an SM.

The register terms follow the mma.sync m16n8k16 fragments (PTX ISA, "Matrix Fragments for mma.m16n8k16"): a
16-row tile of fp32 accumulators takes n/8 * 4 registers of each thread, a 16 x 16 tile of 16-bit operands 4.
They estimate what ptxas needs without spilling; the build reports what it took.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from fagen.hw.arch import Arch
from fagen.plan.budget import SMEM_CTA, THREADS, Budget, Knob, Resource, Values
from fagen.plan.ir import Tiling
from fagen.plan.symbols import Bc, Br, bytes_, ctas, d, dv, reserved, stages, warps
from fagen.spec.rules import ROWS_PER_WARP

# Registers for pointers, loop counters and bounds. FA2's 128 x 64 tile of d = 128 is known to fit in 255.
ADDRESSING = 20
MAX_WARPS = 16  # of a role, as spec/model.py has it

SMEM_SM = "shared memory per SM"
REGISTERS = "registers per thread"

_SMEM = (
    ("Q tile, O staged through it", Br * sp.Max(d, dv) * bytes_),
    ("K ring", Bc * d * bytes_ * stages),
    ("V ring", Bc * dv * bytes_ * stages),
    ("mbarriers, full and empty", 16 * stages),
)


@cache
def _resources(q_operand: str) -> tuple[Resource, ...]:
    rows = Br / warps  # of one warp
    q_fragments = (
        ("Q fragments, held", rows * d / 64)
        if q_operand == "registers"
        else ("Q fragments of two k-steps", rows / 2)
    )
    return (
        Resource(SMEM_CTA, "bytes", _SMEM, lambda arch, _: arch.smem_per_cta),
        Resource(
            SMEM_SM,
            "bytes",
            (
                ("tiles of all CTAs", ctas * sp.Add(*(expr for _, expr in _SMEM))),
                ("taken by the driver", ctas * reserved),
            ),
            lambda arch, _: arch.smem_per_sm,
        ),
        Resource(
            REGISTERS,
            "registers",
            (
                ("O accumulator", rows * dv / 32),
                ("S accumulator", rows * Bc / 32),
                ("P fragment of one k-step (P takes over the registers of S)", rows / 4),
                q_fragments,
                ("K or V fragments of two k-steps", sp.Integer(8)),
                ("row maximum and row sum", rows / 4),
                ("addresses and counters", sp.Integer(ADDRESSING)),
            ),
            registers_allowed,
        ),
        Resource(
            THREADS,
            "threads",
            (("math warps", 32 * warps * ctas),),
            lambda arch, _: arch.max_threads_per_sm,
        ),
    )


def registers_allowed(arch: Arch, at: Values) -> int:
    """Registers that a thread may have, so that all CTAs of an SM find theirs."""
    # Registers are handed out per thread in eights.
    share = int(arch.registers_per_sm // (32 * at[warps] * at[ctas])) // 8 * 8
    return min(arch.max_registers_per_thread, share)


def _knobs(tiling: Tiling) -> tuple[Knob, ...]:
    rows_per_warp = ROWS_PER_WARP["v2"]
    warps_of_rows = [tiling.q // rows for rows in rows_per_warp if tiling.q % rows == 0]
    fitting_warps = sorted(n for n in warps_of_rows if n <= MAX_WARPS)
    return (
        Knob("tile.q", Br, [rows * tiling.warps for rows in rows_per_warp], tiling.q),
        Knob("tile.kv", Bc, range(16, tiling.kv + 1, 16), tiling.kv),
        Knob("stages.kv", stages, range(2, tiling.stages + 1), tiling.stages),
        Knob("roles.math.warps", warps, fitting_warps, tiling.warps),
        Knob("ctas_per_sm", ctas, range(1, tiling.ctas_per_sm + 1), tiling.ctas_per_sm),
    )


BUDGET = Budget(lambda tiling: _resources(tiling.q_operand), _knobs, REGISTERS)
