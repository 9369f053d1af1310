"""`fagen plan --calibrate`: the cost model fitted to what `fagen tune` has measured, GPU by GPU."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fagen.cli.progress import track
from fagen.errors import TuneError
from fagen.plan.efficiency import SHIPPED
from fagen.tune import calibrated, journal
from fagen.tune.atomic import check_writable
from fagen.tune.calibrate import Calibration, calibrate
from fagen.tune.store import tuning_root


def calibrate_all(console: Console) -> None:
    """Fit, store and print the efficiencies of every GPU that the journal has enough measurements of.

    Raises TuneError if there is none, with what to do; OSError where they cannot be stored.
    """
    root = tuning_root()
    if root is None:
        raise TuneError("there is no cache directory to find measurements in: set FAGEN_CACHE_DIR")
    records = list(journal.records(root))
    gpus = sorted({record.where.gpu for record in records})
    if not gpus:
        raise TuneError(
            f"no measurements in {root / journal.FILE}; `fagen tune SPEC` makes some, on the GPU to calibrate"
        )
    if folder := calibrated.calibration_root():
        check_writable(folder)
    problems = []
    for gpu in track(gpus, "fitting {}".format):
        try:
            found = calibrate(records, gpu)
        except TuneError as error:
            problems.append(str(error))
        else:
            _print(console, found, calibrated.store(found))
    if len(problems) == len(gpus):
        raise TuneError("\n".join(dict.fromkeys(problems)))
    for problem in problems:
        _say(console, problem)


def _print(console: Console, found: Calibration, file: Path) -> None:
    table = Table("pass", "number", box=SIMPLE_HEAD)
    for column in ("shipped", "fitted"):
        table.add_column(column, justify="right")
    for name, fit in found.fits.items():
        shipped = asdict(SHIPPED[name])
        for key, value in asdict(fit.efficiency).items():
            table.add_row(name, key, f"{shipped[key]:.4g}", f"{value:.4g}")
    _say(console, str(found))
    console.print(table)
    _say(console, f"stored in {file}\n")


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
