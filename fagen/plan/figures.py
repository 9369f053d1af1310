"""What the bars of a plan's page show: registers, engines, budgets, traffic."""

from __future__ import annotations

from typing import Any

from fagen.page.page import SERIES
from fagen.plan import bars_svg, io
from fagen.plan.bars_svg import Bar, Part
from fagen.plan.explain import Section, cell_text
from fagen.plan.ir import Account, Plan
from fagen.plan.pipeline import Role
from fagen.plan.planner import pipeline

PLAIN, NOTABLE, OWN = SERIES[9], SERIES[0], SERIES[1]


def registers(plan: Plan) -> str:
    """What each role holds of the register file of an SM."""
    ctas = plan.tiling.ctas_per_sm

    def part(role: Role) -> Part:
        how = f"{32 * role.warps} threads x {role.registers}"
        return Part(
            role.name, ctas * role.warps * 32 * role.registers, f"{ctas} CTAs x {how}" if ctas > 1 else how
        )

    parts = [part(role) for role in pipeline(plan).roles]
    return bars_svg.stacked("register file of an SM", parts, plan.arch.registers_per_sm, "registers")


def engines(plan: Plan) -> str:
    """Cycles of each engine for one tile; the bound is marked."""
    bound = plan.engines.bound
    bars = []
    for load in plan.engines.loads:
        says = f"{cell_text(load.cycles)} cycles, {load.cycles / bound.cycles:.0%}"
        is_bound = load is bound
        bars.append(
            Bar(
                load.engine,
                load.cycles,
                f"{says}: the bound" if is_bound else says,
                NOTABLE if is_bound else PLAIN,
            )
        )
    return bars_svg.side_by_side(f"Engines of {plan.spec.name}, {plan.direction}", bars)


def budget(account: Account) -> str:
    """The terms of a budget against what the chip allows."""
    parts = [Part(term.name, term.value, term.formula) for term in account.terms]
    return bars_svg.stacked(account.resource, parts, account.allowed, account.unit)


def traffic(plan: Plan, section: Section) -> str:
    """The section "Traffic" of a plan: bytes of this plan and of those that it is compared with."""
    rows = [dict(zip(section.columns, row, strict=True)) for row in section.rows]
    mine = io.algorithm(plan)
    own = next(row["bytes"] for row in rows if (row["algorithm"], row["level"]) == (mine, "HBM"))

    def bar(row: dict[str, Any]) -> Bar:
        is_own = row["algorithm"] == mine and row["level"] != "paper"
        says = f"{_size(row['bytes'])}, {cell_text(row['us at peak'])} us at peak"
        if row["bytes"] > own > 0:
            says += f", {row['bytes'] / own:.3g} times this plan's HBM"
        name = "this plan" if is_own else row["algorithm"]
        return Bar(f"{name}, {row['level']}", row["bytes"], says, OWN if is_own else PLAIN)

    return bars_svg.side_by_side(f"Bytes that {plan.spec.name} moves", [bar(row) for row in rows])


def _size(count: float) -> str:
    """Bytes in a unit that leaves one to four digits before the point."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:,.4g} TiB"
