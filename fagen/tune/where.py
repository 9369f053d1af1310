"""The machine that a tuning holds for. No torch, and no CUDA context."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from fagen import __version__
from fagen.bench.smi import smi
from fagen.compile.nvrtc import nvrtc_version
from fagen.paths import TEMPLATES
from fagen.runtime.context import device_name, device_uuid
from fagen.tune.entry import Where


def this_machine(device: int = 0) -> Where:
    """A GPU of this machine, and what makes its kernels. Raises LaunchError where there is no GPU."""
    driver = smi(device_uuid(device)).get("driver", "unknown")
    return Where(device_name(device), driver, "{}.{}".format(*nvrtc_version()), generator_hash())


@cache
def generator_hash(templates: Path = TEMPLATES) -> str:
    """Hash of fagen's version and of every template and device header."""
    total = hashlib.sha256(__version__.encode())
    for path in sorted(path for path in templates.rglob("*") if path.is_file()):
        total.update(f"\0{path.relative_to(templates).as_posix()}\0".encode())
        total.update(path.read_bytes())
    return total.hexdigest()[:16]
