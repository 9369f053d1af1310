"""Budgets: what a family's kernel asks of an SM as named sympy terms, whether it fits, and what would.

The terms are each family's own: `v2_budget.py`, `v3_budget.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import sympy as sp

from fagen.hw.arch import Arch
from fagen.plan import symbols
from fagen.plan.ir import Account, Term, Tiling

Values = Mapping[sp.Symbol, float]

SMEM_CTA = "shared memory per CTA"
THREADS = "threads per SM"


@dataclass(frozen=True)
class Resource:
    """Something that a chip has so much of, and the terms that a kernel asks of it."""

    name: str
    unit: str  # "bytes" | "registers" | "threads"
    terms: tuple[tuple[str, sp.Expr], ...]
    allowed: Callable[[Arch, Values], int]


@dataclass(frozen=True)
class Knob:
    """A schedule key that may be lowered until a tiling fits."""

    key: str  # "tile.kv"
    symbol: sp.Symbol
    choices: Sequence[int]  # from the smallest up
    value: int


@dataclass(frozen=True)
class Budget:
    """The budget of a family: what its kernel asks for with a tiling, and the keys that change it.

    `resources` must give the same object for tilings with the same formulas.
    """

    resources: Callable[[Tiling], tuple[Resource, ...]]
    knobs: Callable[[Tiling], tuple[Knob, ...]]
    registers: str  # the resource that "spills" in schedule.allow waives

    def accounts(self, tiling: Tiling, at: Values, arch: Arch) -> tuple[Account, ...]:
        """Every resource that a tiling asks for, term by term, against what `arch` allows."""
        resources = self.resources(tiling)
        numbers = iter(_evaluate(resources, tuple(at))(*at.values()))
        return tuple(
            Account(
                resource.name,
                resource.unit,
                tuple(Term(name, _formula(expr), int(next(numbers))) for name, expr in resource.terms),
                resource.allowed(arch, at),
            )
            for resource in resources
        )

    def largest(
        self,
        symbol: sp.Symbol,
        choices: Sequence[int],
        tiling: Tiling,
        at: Values,
        arch: Arch,
        waived: Collection[str] = (),
    ) -> int | None:
        """The largest of `choices` for `symbol` that fits, the rest of the tiling held; None if none does.

        Each choice is put into the terms: what a thread may have of the registers goes in steps with warps
        and CTAs, and no formula turns that round.
        """
        return max(
            (choice for choice in choices if self._fits(tiling, {**at, symbol: choice}, arch, waived)),
            default=None,
        )

    def overrun(self, tiling: Tiling, at: Values, arch: Arch, waived: Collection[str] = ()) -> str:
        """Every resource that does not fit, term by term, and the largest value of each key that would.

        `waived` names resources that may be overdrawn.
        """
        lines = []
        for account in self.accounts(tiling, at, arch):
            if account.fits or account.resource in waived:
                continue
            wanted = f"{account.used:,} {account.unit} wanted, {account.allowed:,} allowed"
            lines.append(f"{account.resource}: {wanted}")
            for term in account.terms:
                formula = "" if term.formula.isdigit() else f" = {term.formula}"
                lines.append(f"    {term.name}{formula} = {term.value:,}")
        lines.append("largest that fits, the rest held:")
        for knob in self.knobs(tiling):
            most = self.largest(knob.symbol, knob.choices, tiling, at, arch, waived)
            found = most or f"none from {knob.choices[0]} up"
            lines.append(f"    schedule.{knob.key}: {found} (is {knob.value})")
        return "\n".join(lines)

    def _fits(self, tiling: Tiling, at: Values, arch: Arch, waived: Collection[str]) -> bool:
        return all(account.fits or account.resource in waived for account in self.accounts(tiling, at, arch))


def values(tiling: Tiling, dim: int, dim_v: int, element_bytes: int, arch: Arch) -> dict[sp.Symbol, float]:
    """The numbers that a tiling on `arch` puts in the formulas; `dim` and `dim_v` already padded."""
    return {
        symbols.Br: tiling.q,
        symbols.Bc: tiling.kv,
        symbols.d: dim,
        symbols.dv: dim_v,
        symbols.bytes_: element_bytes,
        symbols.stages: tiling.stages,
        symbols.warps: tiling.warps,
        symbols.ctas: tiling.ctas_per_sm,
        symbols.reserved: arch.smem_reserved_per_cta,
        symbols.q_stages: tiling.q_stages,
        symbols.load_registers: tiling.load_registers,
        symbols.math_registers: tiling.math_registers,
        symbols.cluster: tiling.cluster,
        symbols.polynomial: tiling.polynomial,
        symbols.warps_q: tiling.warps_q,
        symbols.warps_dq: tiling.warps_dq,
        symbols.ds_stages: tiling.ds_stages,
    }


@cache
def _formula(expr: sp.Expr) -> str:
    return str(expr)


@cache
def _evaluate(
    resources: tuple[Resource, ...], arguments: tuple[sp.Symbol, ...]
) -> Callable[..., list[float]]:
    terms = [expr for resource in resources for _, expr in resource.terms]
    return sp.lambdify(arguments, terms, modules="math")
