"""Calibrations kept between processes: a JSON file per GPU in the user's cache directory."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import asdict
from math import inf
from pathlib import Path

from fagen.compile.cache import default_root
from fagen.errors import TuneError
from fagen.plan.efficiency import SHIPPED, Efficiencies, Efficiency
from fagen.tune.atomic import write_atomically
from fagen.tune.calibrate import Calibration
from fagen.tune.damage import DAMAGE

VERSION = 1  # raise it when the numbers of efficiency.py change their meaning

_log = logging.getLogger("fagen")


def calibration_root() -> Path | None:
    """Where calibrations lie; None where the user has no cache directory."""
    root = default_root()
    return root / "calibration" if root else None


def store(calibration: Calibration, root: Path | None = None) -> Path:
    """Write it under `root`, by default `calibration_root()`; returns the file.

    Raises TuneError where there is no cache directory, OSError where it cannot be written.
    """
    root = root or calibration_root()
    if root is None:
        raise TuneError("there is no cache directory to keep a calibration in: set FAGEN_CACHE_DIR")
    path = _path(root, calibration.gpu)
    write_atomically(path, json.dumps({"version": VERSION, **asdict(calibration)}, indent=1) + "\n")
    return path


def efficiencies(gpu: str, root: Path | None = None) -> Efficiencies:
    """The calibrated ones of a GPU, by its product name, for `predict`; none where it was not calibrated.

    A file that is damaged or of another version is ignored, with a line in the log.
    """
    root = root or calibration_root()
    if root is None:
        return {}
    path = _path(root, gpu)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            raise ValueError(f"its version is {data['version']}, not {VERSION}")
        return {name: _efficiency(name, fit["efficiency"]) for name, fit in data["fits"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, *DAMAGE) as error:
        _log.warning("calibration %s ignored: %s", path, error)
        return {}


def _efficiency(name: str, numbers: dict[str, float]) -> Efficiency:
    kind = type(SHIPPED[name])
    if not all(isinstance(value, int | float) and 0 < value < inf for value in numbers.values()):
        raise ValueError(f"{name} has numbers that are not above 0 and finite")
    if set(numbers) != set(asdict(SHIPPED[name])):
        raise ValueError(f"{name} has other numbers than this version of fagen")
    return kind(**{key: float(value) for key, value in numbers.items()})


def _path(root: Path, gpu: str) -> Path:
    return root / f"{re.sub(r'[^a-z0-9]+', '-', gpu.lower()).strip('-')}.json"
