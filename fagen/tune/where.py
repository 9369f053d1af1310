"""The machine that a tuning holds for."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from fagen import __version__
from fagen.bench.machine import arch_of_device, machine
from fagen.paths import TEMPLATES
from fagen.tune.entry import Where


def this_machine() -> Where:
    """GPU 0 of this machine, and what makes its kernels. Raises LaunchError where there is no GPU."""
    arch_of_device(0)
    here = machine()
    return Where(here["device"], here.get("driver", "unknown"), here["nvrtc"], generator_hash())


@cache
def generator_hash(templates: Path = TEMPLATES) -> str:
    """Hash of fagen's version and of every template and device header."""
    total = hashlib.sha256(__version__.encode())
    for path in sorted(path for path in templates.rglob("*") if path.is_file()):
        total.update(f"\0{path.relative_to(templates).as_posix()}\0".encode())
        total.update(path.read_bytes())
    return total.hexdigest()[:16]
