"""`fagen run`: a spec's op on random inputs, against the reference and against the plan's prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fagen.cli.options import SetOption, ShapeOption, SpecArgument, overrides
from fagen.plan.launch import Shape

if TYPE_CHECKING:
    from fagen.bench.trial import Trial

DEFAULT_SHAPE = Shape(2, 2048, 2048, 16, 16)


def run_command(
    spec: SpecArgument,
    shape: ShapeOption = DEFAULT_SHAPE,
    settings: SetOption = None,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    device: Annotated[int, typer.Option(help="CUDA device.")] = 0,
) -> None:
    """Run a spec's op on the GPU: error against the reference, time and speed beside the prediction."""
    from fagen.bench.trial import trial  # imports torch, which most commands do without
    from fagen.ops.load import load

    done = trial(load(spec, overrides(settings)), shape, seed, device)
    typer.echo(report(done))
    if not done.right:
        typer.echo("error: the result is outside of what is allowed", err=True)
        raise typer.Exit(1)


def report(done: Trial) -> str:
    """What a trial found, line by line, each beside what was allowed or predicted."""
    expected = done.prediction
    return "\n".join(
        (
            f"{done.plan.spec.name} on {done.device} ({done.plan.arch.name}), B,Sq,Sk,Hq,Hkv = {done.shape}",
            f"  out    largest error {done.error:.2e}; allowed {done.allowed:.2e}",
            f"  LSE    largest error {done.lse_error:.2e}; allowed {done.lse_allowed:.2e}",
            f"  time   {done.seconds * 1e6:,.1f} us; predicted {expected.seconds * 1e6:,.1f}",
            f"  speed  {done.tflops:,.1f} TFLOP/s; predicted {expected.tflops:,.1f}",
            f"  the prediction is for {done.plan.device.name}, bound by {expected.bound}",
        )
    )
