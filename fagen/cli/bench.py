"""`fagen bench`: specs against other implementations of attention, on this machine's GPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fagen.cli.console import table_console
from fagen.cli.options import SpecsArgument, in_a_directory
from fagen.cli.progress import track
from fagen.spec.load import load_spec

if TYPE_CHECKING:
    from fagen.bench.compare import Result


def bench_command(
    specs: SpecsArgument,
    seqlens: Annotated[str, typer.Option(metavar="S,S,...", help="Sequence lengths.")] = "2048,8192",
    backward: Annotated[bool, typer.Option("--backward", help="Time the backward, not the forward.")] = False,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            dir_okay=False,
            callback=in_a_directory,
            help="Write medians, spread, versions there.",
        ),
    ] = None,
) -> None:
    """Time each spec's op, with and without a causal mask, beside other implementations of attention.

    Those are PyTorch's flash and cuDNN attention, and FlashAttention-3 and -4 where they are installed. 16k
    tokens, hidden dimension 2048; a spec with a sliding window keeps it. TFLOP/s count visible pairs only. A
    wrong result is not timed. Ctrl-C prints what is known by then.

    With --backward also beside the op's own deterministic mode; the error is then that of the worst gradient,
    as a share of what is allowed.
    """
    lengths = parse_seqlens(seqlens)
    loaded = [load_spec(path) for path in specs]

    from fagen.bench import compare, machine, report  # import torch, which most commands do without

    direction = "backward" if backward else "forward"
    todo = compare.cases(loaded, lengths, machine.arch_of_device(0), direction)
    compare.build(todo)
    results: list[Result] = []
    try:
        for case in track(todo, str):
            results.append(compare.run(case))
    finally:
        if results:
            _print(results)
        if results and json_file:
            json_file.write_text(json.dumps(report.to_json(results, machine.machine()), indent=2) + "\n")
    if any(result.outcomes[compare.OURS].problem for result in results):
        raise typer.Exit(1)


def parse_seqlens(text: str) -> tuple[int, ...]:
    """`2048,8192` as lengths. Raises `typer.BadParameter` for anything but whole numbers from 1."""
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise typer.BadParameter(f"{text}: want whole numbers from 1, e.g. 2048,8192", param_hint="--seqlens")
    return tuple(map(int, numbers))


def _print(results: Sequence[Result]) -> None:
    from fagen.bench import report

    for failure in report.failures(results):
        typer.echo(failure, err=True)
    table_console().print(report.table(results))
    for summary in report.summaries(results):
        typer.echo(str(summary))
