"""What v2's backward asks of an SM: the kernel that multiplies.

The warps of a CTA split all five products. S = Q K^T and dP = dO V^T are split over warps_q x warps/warps_q
warps, rows by columns; dV = P^T dO and dK = dS^T Q over the same grid turned round; dQ = dS K over
warps_dq x warps/warps_dq warps. The register terms follow the fragments of mma.sync, as in v2_budget.py.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from fagen.plan.budget import SMEM_CTA, THREADS, Budget, Knob, Resource
from fagen.plan.ir import Tiling
from fagen.plan.symbols import Bc, Br, bytes_, ctas, d, ds_stages, dv, reserved, stages, warps
from fagen.plan.v2_budget import REGISTERS, SMEM_SM, registers_allowed

FRAGMENTS = 16  # operands of two k-steps
ADDRESSING = 40  # pointers, counters and bounds, and where each product's operands lie

# What dropout keeps, a register for every 16 x 16 scores; without a soft cap ptxas finds room for it.
_KEPT = Br * Bc / (256 * warps)
_SMEM = (
    ("K tile", Bc * d * bytes_),
    ("V tile", Bc * dv * bytes_),
    ("Q tiles", Br * d * bytes_ * stages),
    ("dO tiles", Br * dv * bytes_ * stages),
    ("P tiles", Br * Bc * bytes_ * ds_stages),
    ("dS tiles", Br * Bc * bytes_ * ds_stages),
    ("LSE and delta of each row", 8 * Br * stages),
    ("mbarriers", 8 * stages),
)


@cache
def _resources(keeps: bool) -> tuple[Resource, ...]:
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
                ("dK and dV accumulators", Bc * (d + dv) / (32 * warps)),
                (
                    f"S and dP{', and what dropout keeps,' if keeps else ''} or dQ in their place",
                    sp.Max(Br * Bc / (16 * warps) + (_KEPT if keeps else 0), Br * d / (32 * warps)),
                ),
                ("fragments of two k-steps", sp.Integer(FRAGMENTS)),
                ("addresses and counters", sp.Integer(ADDRESSING)),
            ),
            registers_allowed,
        ),
        Resource(
            THREADS,
            "threads",
            (("warps", 32 * warps * ctas),),
            lambda arch, _: arch.max_threads_per_sm,
        ),
    )


def _knobs(tiling: Tiling) -> tuple[Knob, ...]:
    rows_q = 16 * max(tiling.warps_q, tiling.warps_dq)
    rows_kv = 16 * tiling.warps_kv
    return (
        Knob("backward.tile.q", Br, range(rows_q, tiling.q + 1, rows_q), tiling.q),
        Knob("backward.tile.kv", Bc, range(rows_kv, tiling.kv + 1, rows_kv), tiling.kv),
        Knob("backward.stages.q", stages, range(1, tiling.stages + 1), tiling.stages),
        Knob("backward.stages.ds", ds_stages, range(1, tiling.ds_stages + 1), tiling.ds_stages),
        Knob("backward.ctas_per_sm", ctas, range(1, tiling.ctas_per_sm + 1), tiling.ctas_per_sm),
    )


BUDGET = Budget(lambda tiling: _resources(tiling.dropout and tiling.softcap), _knobs, REGISTERS)
