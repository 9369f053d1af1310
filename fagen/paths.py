"""Where the shipped data is: beside the package in a source tree, inside it in an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_PACKAGED = _PACKAGE / "_data"
_HOME = _PACKAGED if _PACKAGED.is_dir() else _PACKAGE.parent

TEMPLATES = _HOME / "templates"
SPECS = _HOME / "specs"
