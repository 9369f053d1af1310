"""`fagen run`: a spec's op on random inputs, against the reference, on a GPU or in the emulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fagen.cli.device import usual_device
from fagen.cli.options import MOST_SEED, RunShapeOption, SetOption, SpecArgument, in_a_directory, overrides
from fagen.cli.progress import track
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec

if TYPE_CHECKING:
    from fagen.bench.trial import PassTrial, Trial

GPU_SHAPE = Shape(2, 2048, 2048, 16, 16)
EMULATED_SHAPE = Shape(1, 128, 256, 1, 1)
EMULATOR = "emu"


def run_command(
    spec: SpecArgument,
    shape: RunShapeOption = None,
    settings: SetOption = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="emu|N",
            help="The emulator, or the number of a CUDA device; left out: device 0, or the emulator where "
            "there is none that runs the spec's family.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_SEED, help="Seed of the random inputs, and of the emulator's first run."
        ),
    ] = 0,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Runs in the emulator, each in another order.", show_default="1"),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            callback=in_a_directory,
            help="Write a Chrome trace of the emulator's first forward there, for ui.perfetto.dev.",
        ),
    ] = None,
) -> None:
    """Run a spec's op: errors of every pass against the reference; on a GPU also speed and its prediction."""
    from fagen.bench.trial import emulated_trial, trial  # import torch, which most commands do without
    from fagen.ops.load import load

    loaded = load_spec(spec, overrides(settings))
    device = device or usual_device(loaded, EMULATOR)
    if device == EMULATOR:
        op = load(loaded, device=EMULATOR)
        for _ in track([op.name], lambda name: f"compiling {name}"):
            op.prepare()
        runs = track(range(seed, seed + (seeds or 1)), lambda run: f"seed {run}")
        done = emulated_trial(op, shape or EMULATED_SHAPE, seed, runs, trace)
    elif not device.isdecimal():
        raise typer.BadParameter(f"--device: is {device}; allowed: {EMULATOR}, or a CUDA device's number")
    elif seeds or trace:
        raise typer.BadParameter("--seeds, --trace: allowed only with --device emu")
    else:
        done = trial(load(loaded), shape or GPU_SHAPE, seed, int(device))
    typer.echo(report(done))
    if trace:
        typer.echo(f"  trace    {trace}; ui.perfetto.dev shows it")
    if not done.right:
        typer.echo("error: the result is outside of what is allowed", err=True)
        raise typer.Exit(1)


def report(done: Trial) -> str:
    """What a trial found, line by line, each beside what was allowed or predicted."""
    where = f"in the emulator on {done.device}" if done.seeds else f"on {done.device}"
    plan, shape = done.passes[0].plan, done.passes[0].shape
    return "\n".join(
        (
            f"{plan.spec.name} {where} ({plan.arch.name}), B,Sq,Sk,Hq,Hkv = {shape}",
            *(line for own in done.passes for line in _pass(own, emulated=bool(done.seeds))),
            *(_seeds(done) if done.seeds else (f"  predictions are for {plan.device.name}",)),
        )
    )


def _pass(own: PassTrial, emulated: bool) -> tuple[str, ...]:
    return (
        f"  {own.plan.direction}",
        *(f"    {x.name:5}  {x.measure} {x.error:.2e}; allowed {x.allowed:.2e}" for x in own.deviations),
        *((f"    time   {own.seconds:.2f} s of this CPU",) if emulated else _timed(own)),
    )


def _timed(own: PassTrial) -> tuple[str, ...]:
    expected = own.prediction
    return (
        f"    time   {own.seconds * 1e6:,.1f} us; predicted {expected.seconds * 1e6:,.1f}, "
        f"bound by {expected.bound}",
        f"    speed  {own.tflops:,.1f} TFLOP/s; predicted {expected.tflops:,.1f}",
    )


def _seeds(done: Trial) -> tuple[str, ...]:
    return (
        f"  runs     {len(done.seeds)}, seeds {', '.join(map(str, done.seeds))}: nothing to object to",
        "  emulated: these times are no measure of any GPU's speed",
    )
