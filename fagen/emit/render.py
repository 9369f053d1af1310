"""Plan → Source: prints a family's template."""

from __future__ import annotations

from fagen.emit.context import context
from fagen.emit.env import environment
from fagen.emit.source import Source
from fagen.plan.ir import Plan


def render(plan: Plan) -> Source:
    """The kernel of `plan` as CUDA C++; the same plan always prints the same text."""
    text = environment().get_template(f"{plan.spec.family}/forward.cu.j2").render(context(plan))
    return Source(
        name=plan.spec.name,
        symbol=plan.symbol,
        arch=plan.arch.name,
        text=text,
        threads=plan.tiling.threads,
        smem_bytes=plan.smem_bytes,
        allow=plan.spec.schedule.allow,
    )
