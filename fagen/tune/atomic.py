"""Files that are whole or absent, however the process that writes them ends."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from fagen.files import naming


def write_atomically(path: Path, text: str) -> None:
    """Write `text` beside `path` and rename it into place; makes the directory. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with naming(path), os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)  # mkstemp lets nobody else read it
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def check_writable(folder: Path) -> None:
    """Make the directory, and a file in it for a moment. Raises OSError where that cannot be."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
