"""`fagen tune`: the fastest variant of specs for given shapes, on this machine's GPUs or a cluster's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fagen.cli.bench import shapes_of
from fagen.cli.console import table_console
from fagen.cli.options import SpecsArgument, in_a_directory
from fagen.cli.progress import Stages
from fagen.files import write_text
from fagen.spec.load import load_spec
from fagen.tune.budget import starting_now

if TYPE_CHECKING:
    from fagen.tune.job import Workers
    from fagen.tune.outcome import Outcome
    from fagen.tune.store import Where

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def parse_budget(text: str | float) -> float:
    """`60s`, `5m`, `1h` or `90` in seconds. Raises `typer.BadParameter` for all else."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh]?)", str(text).strip())
    if match is None or not float(match[1]):
        raise typer.BadParameter(f"{text}: want a time above 0, e.g. 60s, 5m or 1h")
    return float(match[1]) * SECONDS[match[2]]


def tune_command(
    specs: SpecsArgument,
    shapes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Tune for the shapes of a YAML file, e.g. specs/shapes/models.yaml.",
            show_default=False,
        ),
    ] = None,
    seqlens: Annotated[
        str | None,
        typer.Option(
            metavar="S,S,...",
            help="Tune for the papers' shapes at these lengths; 2048,8192 if left out.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="TIME",
            parser=parse_budget,
            help="End after about that long with the best of what was timed by then, e.g. 60s or 5m.",
            show_default="none",
        ),
    ] = None,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Time every variant that fits, not the most promising fifth.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Directory for the winners' specs; specs/tuned where there is specs/, else tuned.",
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            callback=in_a_directory,
            help="Write a page with the winners and all that was timed there.",
            show_default=False,
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Work on a Ray cluster: its address, or auto.", show_default=False
        ),
    ] = None,
) -> None:
    """Find the fastest variant of the specs for each shape, and write it as a spec.

    Of several specs those made for a shape's head sizes compete; if none was, those for the next larger ones;
    else all.

    Variants are all combinations of the values in the specs' `tune:` lists; what has no list stays as the
    spec has it. Lists for `backward.` keys are tried after the forward, on its winner. A variant that does
    not fit is left out, with what it wants and what is allowed. Of the others, the fifth that the cost
    model finds most promising is compiled and timed, with the spec as it stands: few rounds for all, more
    and more for the better half. The winner's results must be right, or the next one takes its place.

    All that is timed is kept: after Ctrl-C the same command goes on from there. A result that is known from
    before, on this GPU and with this driver, NVRTC and fagen, is used without timing anything.
    """
    limit = starting_now(budget)
    shapes_of_spec = shapes_of(shapes, seqlens)
    loaded = [load_spec(path) for path in specs]

    # Most commands do without these, which take a while to import.
    from fagen.tune.journal import default_journal
    from fagen.tune.question import questions
    from fagen.tune.store import default_store
    from fagen.tune.tune import Kept, Tuner

    if html:
        from fagen.bench.html.plots import check_installed  # matplotlib, which is an extra

        check_installed()
    asked = questions((spec, shapes_of_spec(spec)) for spec in loaded)
    folder = out or (Path("specs/tuned") if Path("specs").is_dir() else Path("tuned"))
    kept = Kept(default_store(), default_journal(), folder)
    kept.check_writable()
    if not kept.journal.is_kept:
        typer.echo(
            "no cache directory: later runs will know nothing of this one; set FAGEN_CACHE_DIR", err=True
        )
    outcomes: list[Outcome] = []
    where: Where | None = None
    try:
        with workers_of(ray) as workers, Stages() as stages:
            where = workers.kind.where
            for outcome in Tuner(workers, kept, limit, exhaustive, stages).tune(asked):
                outcomes.append(outcome)
    except KeyboardInterrupt:
        goes_on = ": what was timed is kept; the same command goes on from there"
        typer.echo(f"interrupted{goes_on if kept.journal.is_kept else ''}", err=True)
        raise
    finally:
        _print(outcomes, folder)
        if html and where:
            _write_page(html, outcomes, where)
    if any(outcome.problem for outcome in outcomes):
        raise typer.Exit(1)


def workers_of(ray: str | None) -> Workers:
    """Those of this machine, or of the Ray cluster at an address. Raises what they raise: no GPU, no Ray."""
    if ray is None:
        from fagen.tune.local import local_workers

        return local_workers()
    from fagen.tune.cluster import ray_workers
    from fagen.tune.work import WORK

    return ray_workers(ray, WORK)


def _print(outcomes: Sequence[Outcome], folder: Path) -> None:
    from fagen.tune import report

    for line in (*report.refusals(outcomes), *report.failures(outcomes)):
        typer.echo(line, err=True)
    if won := [outcome for outcome in outcomes if outcome.winner]:
        table_console().print(report.table(won))
        typer.echo(f"the winners' specs are in {folder}")
    if known := sum(outcome.stored for outcome in outcomes):
        typer.echo(f"{known} of {len(outcomes)} results are known from before: nothing was timed for them")


def _write_page(path: Path, outcomes: Sequence[Outcome], where: Where) -> None:
    from fagen.tune.html import page
    from fagen.tune.journal import records
    from fagen.tune.store import tuning_root

    root = tuning_root()
    write_text(path, page(outcomes, records(root) if root else (), where))
    typer.echo(f"wrote {path}")
