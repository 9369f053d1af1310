"""The budget of the v2 kernel: shared memory and registers as named sympy terms, and what would fit.

The register terms follow the mma.sync m16n8k16 fragments (PTX ISA, "Matrix Fragments for mma.m16n8k16"): a
16-row tile of fp32 accumulators takes n/8 * 4 registers of each thread, a 16 x 16 tile of 16-bit operands 4.
They estimate what ptxas needs without spilling; the build reports what it took.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import sympy as sp

from fagen.hw.arch import Arch
from fagen.plan.ir import Account, Term, Tiling
from fagen.plan.symbols import Bc, Br, bytes_, ctas, d, dv, reserved, stages, warps
from fagen.spec.rules import ROWS_PER_WARP

Values = Mapping[sp.Symbol, int]

# Registers for pointers, loop counters and bounds. FA2's 128 x 64 tile of d = 128 is known to fit in 255.
ADDRESSING = 20
MAX_WARPS = 16  # of a role, as spec/model.py has it

SMEM_CTA = "shared memory per CTA"
SMEM_SM = "shared memory per SM"
REGISTERS = "registers per thread"
THREADS = "threads per SM"


@dataclass(frozen=True)
class _Resource:
    name: str
    unit: str
    terms: tuple[tuple[str, sp.Expr], ...]
    allowed: Callable[[Arch, Values], int]


def pad16(columns: int) -> int:
    """Columns rounded up to what one mma k-step takes."""
    return -(-columns // 16) * 16


def values(tiling: Tiling, dim: int, dim_v: int, element_bytes: int, arch: Arch) -> dict[sp.Symbol, int]:
    """The numbers that a tiling on `arch` puts in the formulas; `dim` and `dim_v` already padded."""
    return {
        Br: tiling.q,
        Bc: tiling.kv,
        d: dim,
        dv: dim_v,
        bytes_: element_bytes,
        stages: tiling.stages,
        warps: tiling.warps,
        ctas: tiling.ctas_per_sm,
        reserved: arch.smem_reserved_per_cta,
    }


def accounts(tiling: Tiling, at: Values, arch: Arch) -> tuple[Account, ...]:
    """Every resource that a tiling asks for, term by term, against what `arch` allows."""
    numbers = iter(_evaluate(tiling.q_operand)(*(at[symbol] for symbol in _ARGUMENTS)))
    return tuple(
        Account(
            resource.name,
            resource.unit,
            tuple(Term(name, _formula(expr), int(next(numbers))) for name, expr in resource.terms),
            resource.allowed(arch, at),
        )
        for resource in _resources(tiling.q_operand)
    )


def largest(
    symbol: sp.Symbol,
    choices: Iterable[int],
    tiling: Tiling,
    at: Values,
    arch: Arch,
    waived: Collection[str] = (),
) -> int | None:
    """The largest of `choices` for `symbol` that fits, the rest of the tiling held; None if none does.

    Each choice is put into the terms: what a thread may have of the registers goes in steps with warps and
    CTAs, and no formula turns that round.
    """
    return max(
        (choice for choice in choices if _fits(tiling, {**at, symbol: choice}, arch, waived)), default=None
    )


def _fits(tiling: Tiling, at: Values, arch: Arch, waived: Collection[str]) -> bool:
    return all(account.fits or account.resource in waived for account in accounts(tiling, at, arch))


def overrun(tiling: Tiling, at: Values, arch: Arch, waived: Collection[str] = ()) -> str:
    """Every resource that does not fit, term by term, and the largest value of each key that would.

    `waived` names resources that may be overdrawn.
    """
    lines = []
    for account in accounts(tiling, at, arch):
        if account.fits or account.resource in waived:
            continue
        wanted = f"{account.used:,} {account.unit} wanted, {account.allowed:,} allowed"
        lines.append(f"{account.resource}: {wanted}")
        for term in account.terms:
            formula = "" if term.formula.isdigit() else f" = {term.formula}"
            lines.append(f"    {term.name}{formula} = {term.value:,}")
    warps_of_rows = [tiling.q // rows for rows in ROWS_PER_WARP if tiling.q % rows == 0]
    knobs = (
        ("tile.q", Br, [rows * tiling.warps for rows in ROWS_PER_WARP], tiling.q),
        ("tile.kv", Bc, range(16, tiling.kv + 1, 16), tiling.kv),
        ("stages.kv", stages, range(2, tiling.stages + 1), tiling.stages),
        ("roles.math.warps", warps, sorted(n for n in warps_of_rows if n <= MAX_WARPS), tiling.warps),
        ("ctas_per_sm", ctas, range(1, tiling.ctas_per_sm + 1), tiling.ctas_per_sm),
    )
    lines.append("largest that fits, the rest held:")
    for key, symbol, choices, value in knobs:
        most = largest(symbol, choices, tiling, at, arch, waived)
        lines.append(f"    schedule.{key}: {most or f'none from {choices[0]} up'} (is {value})")
    return "\n".join(lines)


_ARGUMENTS = (Br, Bc, d, dv, bytes_, stages, warps, ctas, reserved)

_SMEM = (
    ("Q tile, O staged through it", Br * sp.Max(d, dv) * bytes_),
    ("K ring", Bc * d * bytes_ * stages),
    ("V ring", Bc * dv * bytes_ * stages),
    ("mbarriers, full and empty", 16 * stages),
)


def _registers_allowed(arch: Arch, at: Values) -> int:
    # Registers are handed out per thread in eights.
    share = arch.registers_per_sm // (32 * at[warps] * at[ctas]) // 8 * 8
    return min(arch.max_registers_per_thread, share)


@cache
def _resources(q_operand: str) -> tuple[_Resource, ...]:
    rows = Br / warps  # of one warp
    q_fragments = (
        ("Q fragments, held", rows * d / 64)
        if q_operand == "registers"
        else ("Q fragments of two k-steps", rows / 2)
    )
    return (
        _Resource(SMEM_CTA, "bytes", _SMEM, lambda arch, _: arch.smem_per_cta),
        _Resource(
            SMEM_SM,
            "bytes",
            (
                ("tiles of all CTAs", ctas * sp.Add(*(expr for _, expr in _SMEM))),
                ("taken by the driver", ctas * reserved),
            ),
            lambda arch, _: arch.smem_per_sm,
        ),
        _Resource(
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
            _registers_allowed,
        ),
        _Resource(
            THREADS,
            "threads",
            (("math warps", 32 * warps * ctas),),
            lambda arch, _: arch.max_threads_per_sm,
        ),
    )


@cache
def _formula(expr: sp.Expr) -> str:
    return str(expr)


@cache
def _evaluate(q_operand: str) -> Callable[..., list[float]]:
    terms = [expr for resource in _resources(q_operand) for _, expr in resource.terms]
    return sp.lambdify(_ARGUMENTS, terms, modules="math")
