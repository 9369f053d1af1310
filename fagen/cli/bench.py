"""`fagen bench`: specs against other implementations of attention, on this machine's GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fagen.bench.modes import MODES
from fagen.bench.shapes import NamedShape, paper_shapes, read_shapes
from fagen.cli.console import table_console
from fagen.cli.options import SpecsArgument, in_a_directory
from fagen.cli.progress import track
from fagen.plan.launch import INT32_MAX
from fagen.spec.load import load_spec
from fagen.spec.model import Spec

if TYPE_CHECKING:
    from fagen.bench.case import Refusal
    from fagen.bench.compare import Result
    from fagen.bench.document import Document
    from fagen.bench.reports import Files

SEQLENS = "2048,8192"


def _to(flag: str, what: str) -> Any:
    return typer.Option(
        flag, metavar="FILE", dir_okay=False, callback=in_a_directory, help=what, show_default=False
    )


def bench_command(
    specs: SpecsArgument,
    shapes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Time the shapes of a YAML file, e.g. specs/shapes/models.yaml.",
            show_default=False,
        ),
    ] = None,
    seqlens: Annotated[
        str | None,
        typer.Option(
            metavar="S,S,...",
            help=f"Time the papers' shapes at these lengths; {SEQLENS} if left out.",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        str, typer.Option(metavar="M,M,...", help="What is timed: fwd, bwd, fwd+bwd, or several of them.")
    ] = "fwd",
    json_file: Annotated[Path | None, _to("--json", "Write all that was measured there.")] = None,
    markdown_file: Annotated[Path | None, _to("--markdown", "Write a Markdown table there.")] = None,
    html_file: Annotated[Path | None, _to("--html", "Write a page with pictures there.")] = None,
    old_file: Annotated[
        Path | None,
        typer.Option(
            "--compare",
            metavar="OLD.json",
            help="Say what got slower or faster since that --json; exit code 1 where ours did.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Time each spec's op beside other implementations of attention.

    Those are, where installed, PyTorch's flash and cuDNN attention, FlexAttention, FlashAttention-2, -3 and
    -4, xFormers and FlashInfer; and standard attention, where S x S fits. Of 8 bits: cuDNN, FlashAttention-3,
    the op with the time of quantising, and its kernels of 16 bits. Without --shapes: 16k tokens,
    hidden dimension 2048, with and without a causal mask; a spec with a sliding window keeps that.

    All are checked first; a wrong result is not timed. Device time with warm-up, medians; TFLOP/s count
    visible pairs only, of a backward 2.5 times the forward's. Mode bwd is also timed with
    problem.deterministic. Ctrl-C prints and writes what is known by then.
    """
    modes, shapes_of_spec = parse_modes(mode), shapes_of(shapes, seqlens)
    loaded = [load_spec(path) for path in specs]

    from fagen.bench import document, machine, run  # import torch, which most commands do without
    from fagen.bench.case import cases
    from fagen.bench.reports import Files

    files = Files(json_file, markdown_file, html_file)
    files.check()
    old = document.read(old_file) if old_file else None
    todo, refused = cases(loaded, shapes_of_spec, modes, machine.arch_of_device(0))
    if old:
        document.check_in_common(old, todo)
    for refusal in refused:
        typer.echo(refusal, err=True)
    run.build(todo)
    results: list[Result] = []
    is_worse = False
    try:
        for case in track(todo, str):
            results.append(run.run(case))
    finally:
        if results:
            is_worse = _report(results, refused, files, old)
    if is_worse:
        raise typer.Exit(1)


def parse_modes(text: str) -> tuple[str, ...]:
    """`fwd,bwd` as modes, each once. Raises `typer.BadParameter`."""
    modes = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if unknown := [mode for mode in modes if mode not in MODES]:
        raise typer.BadParameter(
            f"{unknown[0]!r}: allowed: {', '.join(MODES)}, or several", param_hint="--mode"
        )
    return modes


def parse_seqlens(text: str) -> tuple[int, ...]:
    """`2048,8192` as lengths, each once. Raises `typer.BadParameter` for all but 1 to INT32_MAX."""
    numbers = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d{1,10}", number) and 1 <= int(number) <= INT32_MAX for number in numbers):
        raise typer.BadParameter(
            f"{text}: want whole numbers from 1 to {INT32_MAX}, e.g. 2048,8192", param_hint="--seqlens"
        )
    return tuple(dict.fromkeys(map(int, numbers)))


def shapes_of(file: Path | None, seqlens: str | None) -> Callable[[Spec], Sequence[NamedShape]]:
    """The shapes that a spec is timed at."""
    if file is None:
        lengths = parse_seqlens(SEQLENS if seqlens is None else seqlens)
        return lambda spec: paper_shapes(spec, lengths)
    if seqlens is not None:
        raise typer.BadParameter(
            "allowed only without --shapes, which says all lengths", param_hint="--seqlens"
        )
    named = read_shapes(file)
    return lambda spec: named


def _report(
    results: Sequence[Result], refused: Sequence[Refusal], files: Files, old: Document | None
) -> bool:
    """Print and write what was found; whether something of ours failed, or is slower than in `old`."""
    from fagen.bench import document, machine
    from fagen.bench.changes import changes_table, compared
    from fagen.bench.compare import is_ours
    from fagen.bench.peers.installed import versions
    from fagen.bench.summary import failures, summaries
    from fagen.bench.table import terminal_tables

    for failure in failures(results):
        typer.echo(failure, err=True)
    for table in terminal_tables(results):
        table_console().print(table)
    for summary in summaries(results):
        typer.echo(str(summary))
    found = document.to_json(results, refused, machine.machine(), versions())
    files.write(found, results)
    is_worse = any(
        outcome.problem for result in results for name, outcome in result.outcomes.items() if is_ours(name)
    )
    if old:
        changes = compared(old, found)
        for difference in changes.machines:
            typer.echo(difference, err=True)
        table_console().print(changes_table(changes))
        is_worse |= changes.is_worse
    return is_worse
