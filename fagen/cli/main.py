"""The `fagen` command: registers one function per subcommand and turns errors into exit codes."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer
from typer.core import TyperGroup

from fagen import __version__
from fagen.cli.bench import bench_command
from fagen.cli.build import build_command
from fagen.cli.doctor import doctor_command
from fagen.cli.emit import emit_command
from fagen.cli.explain import explain_command
from fagen.cli.numerics import numerics_command
from fagen.cli.plan import plan_command
from fagen.cli.run import run_command
from fagen.cli.schema import schema_command
from fagen.cli.support import support_command
from fagen.cli.tune import tune_command
from fagen.errors import FagenError


class _Commands(TyperGroup):
    """Subcommands whose errors, and the file system's, become a message and exit code 1, Ctrl-C 130."""

    def invoke(self, ctx: typer.Context) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # a Θ is not worth failing for
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `fagen plan SPEC | head`: click ends it quietly
            raise
        except (FagenError, OSError) as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(130) from interrupt


app = typer.Typer(
    cls=_Commands,
    help="FlashAttention kernels from a YAML spec: plan, emit, build, run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fagen {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """FlashAttention kernels from a YAML spec: plan, emit, build, run."""


for _name, _command in {
    "plan": plan_command,
    "explain": explain_command,
    "emit": emit_command,
    "build": build_command,
    "run": run_command,
    "bench": bench_command,
    "tune": tune_command,
    "numerics": numerics_command,
    "support": support_command,
    "doctor": doctor_command,
    "schema": schema_command,
}.items():
    app.command(_name)(_command)
