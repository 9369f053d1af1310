"""KernelPlan → Source: prints a kernel's template."""

from __future__ import annotations

from fagen.emit.context import context
from fagen.emit.env import environment
from fagen.emit.source import Source
from fagen.plan.kernels import KernelPlan


def render(kernel: KernelPlan) -> Source:
    """A planned kernel as CUDA C++; the same plan always prints the same text."""
    spec = kernel.plan.spec
    return Source(
        name=spec.name,
        symbol=kernel.symbol,
        arch=kernel.plan.arch.name,
        text=environment().get_template(kernel.template).render(context(kernel)),
        threads=kernel.threads,
        smem_bytes=kernel.smem_bytes,
        file=f"{kernel.name}.cu",
        allow=spec.schedule.allow,
    )
