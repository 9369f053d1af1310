"""The plans of a spec as one HTML page: pictures of memory, roles, barriers, time, traffic; the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fagen.page import page
from fagen.plan import explain, figures, pipeline_svg, smem_svg, tables_html, timeline_svg
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.planner import pipeline
from fagen.plan.v3_time import typical_timeline


def render(plans: Sequence[Plan], shape: Shape) -> str:
    """The page of a spec's passes on a shape. Raises PlanError where the kernel cannot be launched on it."""
    explained = [(plan, explain.sections(plan, shape)) for plan in plans]
    first, spec = plans[0], plans[0].spec
    facts = dict(_section(explained[0][1], "Problem").rows)
    lead = (
        f"{spec.family} on {first.device.name} ({first.arch.name}); {spec.problem.dtype}, head_dim "
        f"{spec.problem.head_dim}; mask {facts['mask']}; B,Sq,Sk,Hq,Hkv = {shape}. What the planner decided "
        "and what the models say: nothing here is measured."
    )
    sections = [
        _prediction(explained),
        *(section for each in explained for section in _pass(*each, shape)),
    ]
    return page.render(f"Plan of {spec.name}", sections, lead)


def _prediction(explained: Sequence[tuple[Plan, list[explain.Section]]]) -> page.Section:
    facts = [(plan.direction, dict(_section(sections, "Prediction").rows)) for plan, sections in explained]
    head = ("pass", *facts[0][1])
    rows = [(direction, *map(explain.cell_text, values.values())) for direction, values in facts]
    return page.Section("Predicted time", page.table(head, rows), "FLOP of visible pairs only.")


def _pass(plan: Plan, sections: list[explain.Section], shape: Shape) -> Iterator[page.Section]:
    """Each picture, and the tables that `fagen plan` prints."""
    title = plan.direction.capitalize()
    yield page.Section(
        f"{title}: memory",
        smem_svg.render(plan),
        "To scale, from the first byte of dynamic shared memory down to what the chip allows one CTA.",
    )
    yield page.Section(
        f"{title}: roles",
        _roles(plan) + figures.registers(plan),
        "setmaxnreg moves registers from the load role to the math roles."
        if plan.tiling.load_registers
        else "Registers: what a thread may have at most; `fagen build` reports what ptxas takes.",
    )
    yield page.Section(
        f"{title}: barriers",
        pipeline_svg.render(plan),
        "Who waits for whom. Solid arrows: tiles; dashed: a stage may be filled again. A square is a stage.",
    )
    if plan.spec.family == "v3" and plan.direction == "forward":
        run = timeline_svg.render(typical_timeline(plan, shape), f"Timeline of {plan.spec.name}")
        yield page.Section(
            f"{title}: timeline",
            run,
            f"One SM of {plan.device.name}, two typical work items, as the model runs them.",
        )
    yield page.Section(
        f"{title}: engines",
        figures.engines(plan),
        "Cycles that one SM needs for one Br x Bc tile, each engine alone at the device's clock.",
    )
    yield page.Section(f"{title}: budgets", "\n".join(map(figures.budget, plan.accounts)))
    yield page.Section(
        f"{title}: traffic",
        figures.traffic(plan, _section(sections, "Traffic")),
        "HBM: over the memory bus, after L2. L2: asked of L2 by SMs. Paper: without a cache, as in papers.",
    )
    yield page.Section(f"{title}: tables", "\n".join(map(tables_html.render, sections)))


def _roles(plan: Plan) -> str:
    rows = [
        (role.name, role.warps, role.registers, f"{32 * role.warps * role.registers:,}", role.does)
        for role in pipeline(plan).roles
    ]
    return page.table(("role", "warps", "registers of a thread", "registers", "does"), rows)


def _section(sections: Sequence[explain.Section], title: str) -> explain.Section:
    return next(section for section in sections if section.title == title)
