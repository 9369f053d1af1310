"""`fagen emit`: print the CUDA C++, the plan page and the importable op of each spec."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from fagen.cli.options import GENERATED, OutOption, SpecsArgument
from fagen.compile.headers import find_cuda_headers
from fagen.compile.nvrtc import nvrtc_version
from fagen.emit import generate
from fagen.errors import EmitError
from fagen.spec.load import load_spec


def emit_command(
    specs: SpecsArgument,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail on a difference.")] = False,
    out: OutOption = GENERATED,
    compile_commands: Annotated[
        bool, typer.Option("--compile-commands", help="Also write compile_commands.json, for clangd.")
    ] = False,
) -> None:
    """Write generated/<name>/ for each spec, or check that it is up to date."""
    loaded = [load_spec(path) for path in specs]
    if check:
        differences = [difference for spec in loaded for difference in generate.check(spec, out)]
        if differences:
            mend = shlex.join(["fagen", "emit", *map(str, specs), "--out", str(out)])
            raise EmitError("\n".join([*differences, f"mend with: {mend}"]))
        return
    written = [path for spec in loaded for path in generate.write(spec, out)]
    if compile_commands:
        cuda_include = find_cuda_headers(nvrtc_version()[0]).path
        written.append(generate.compile_commands(loaded, out, cuda_include))
    typer.echo("\n".join(map(str, written)))
