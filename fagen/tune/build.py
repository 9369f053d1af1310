"""Kernels of a pass into this machine's cache: compiled here, or brought from where they were. No torch."""

from __future__ import annotations

from fagen.compile.artifact import Program
from fagen.compile.cache import Cache, default_root
from fagen.compile.nvrtc import compile_program, find_program, prepare
from fagen.emit.render import render
from fagen.emit.source import Source
from fagen.plan.kernels import kernels
from fagen.plan.planner import plan
from fagen.spec.model import Spec


def find(spec: Spec, arch: str, direction: str) -> Program | None:
    """What `build` would find in the cache: in milliseconds, where a process that builds takes a second."""
    return find_program(_sources(spec, arch, direction))


def build(spec: Spec, arch: str, direction: str) -> Program:
    """Compile a pass, unless the cache has it. Raises PlanError, CompileError."""
    return compile_program(_sources(spec, arch, direction))


def keep(spec: Spec, arch: str, direction: str, program: Program) -> None:
    """Put what `build` returned on another machine into the cache, if this one would build the same."""
    unit = prepare(*_sources(spec, arch, direction))
    if unit.key == program.key:
        Cache(default_root()).fetch(unit, lambda: program)


def _sources(spec: Spec, arch: str, direction: str) -> list[Source]:
    return [render(kernel) for kernel in kernels(plan(spec, arch, direction))]
