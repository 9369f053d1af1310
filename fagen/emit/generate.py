"""Writes generated/<name>/: the kernels, their plans and an importable op, all made from the spec alone.

The directories are committed, so that a change to a template shows as a diff of real CUDA.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from pprint import pformat

from fagen.emit.render import render
from fagen.files import write_text
from fagen.paths import TEMPLATES
from fagen.plan.explain import to_markdown
from fagen.plan.kernels import kernels
from fagen.plan.planner import plans
from fagen.spec.model import Spec

_OP = '''"""{name}: printed by fagen from its spec; change the spec, not this file."""

from fagen import load

SPEC = {spec}

attention = load(SPEC)
'''


def files(spec: Spec) -> dict[str, str]:
    """File name → text of everything in generated/<name>/. Raises PlanError."""
    planned = plans(spec)
    resolved = spec.model_dump(exclude={"tune"}, exclude_none=True, exclude_defaults=True)
    return {
        **{f"{kernel.name}.cu": render(kernel).text for one in planned for kernel in kernels(one)},
        "plan.md": to_markdown(planned),
        "__init__.py": _OP.format(name=spec.name, spec=pformat(resolved, sort_dicts=False, width=100)),
    }


def write(spec: Spec, out: Path) -> list[Path]:
    """Writes `out`/<name>/ and returns the paths; a file that is right already is left untouched."""
    directory = out / spec.name
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in files(spec).items():
        path = directory / name
        if _read(path) != text:
            write_text(path, text)
        paths.append(path)
    return paths


def check(spec: Spec, out: Path) -> list[str]:
    """What differs between `out`/<name>/ and what the spec prints: one diff (or line) per file."""
    differences = []
    for name, text in files(spec).items():
        path = out / spec.name / name
        found = _read(path)
        if found is None:
            differences.append(f"{path}: missing")
        elif found != text:
            old, new = found.splitlines(), text.splitlines()
            diff = unified_diff(old, new, str(path), "as the spec prints it", lineterm="")
            differences.append("\n".join(diff))
    return differences


def compile_commands(specs: Sequence[Spec], out: Path, cuda_include: Path | None = None) -> Path:
    """Writes compile_commands.json into `out`, so that clangd reads the kernels as CUDA; returns its path."""
    include = [f"-I{TEMPLATES / 'include'}", *([f"-I{cuda_include}"] if cuda_include else [])]
    flags = ["clang++", "-xcuda", "-std=c++20", "-nocudalib", *include]
    commands = []
    for kernel in (kernel for spec in specs for one in plans(spec) for kernel in kernels(one)):
        file = f"{kernel.plan.spec.name}/{kernel.name}.cu"
        arguments = [*flags, f"--cuda-gpu-arch={kernel.plan.arch.name}", "-c", file]
        commands.append({"directory": str(out.resolve()), "file": file, "arguments": arguments})
    path = out / "compile_commands.json"
    write_text(path, json.dumps(commands, indent=2) + "\n")
    return path


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
