"""What `fagen tune` found, kept between processes: the fastest spec for a problem, a shape and a machine.

One JSON file per problem, shape, direction and GPU: `<root>/<direction, problem, bucket>/<shape>-<gpu>.json`.
What was measured on another GPU, or with another driver, NVRTC or generator, is not trusted: it is left out,
with a line in the log that says why.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from fagen.compile.cache import default_root
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.model import Problem
from fagen.tune.atomic import check_writable, write_atomically
from fagen.tune.damage import DAMAGE
from fagen.tune.entry import Entry, Where, bucket, digest, distance, from_json, problem_key, to_json

_log = logging.getLogger("fagen")


@dataclass(frozen=True)
class Store:
    """Entries under `root`; with None nothing is kept."""

    root: Path | None

    def check_writable(self) -> None:
        """Raises OSError where nothing can be kept."""
        if self.root is not None:
            check_writable(self.root)

    def find(self, problem: Problem, shape: Shape, direction: str, where: Where) -> Entry | None:
        """The entry of the shape, or else the nearest in its bucket; None where none can be trusted."""
        if self.root is None:
            return None
        folder = self.root / _folder(problem, bucket(shape), direction)
        trusted, ignored = _read_all(folder, where)
        wanted = problem_key(problem, direction), bucket(shape), direction
        found = [
            entry
            for entry in trusted
            if (problem_key(entry.problem, direction), entry.bucket, entry.direction) == wanted
        ]
        if not found:
            for path, why in ignored:
                _log.warning("tuned: %s is ignored: %s", path, why)
            return None
        return min(found, key=lambda entry: distance(entry.shape, shape))

    def put(self, entry: Entry) -> Path | None:
        """Keep `entry` in the place of one for the same shape and GPU; the file, or None without a root."""
        if self.root is None:
            return None
        folder = self.root / _folder(entry.problem, entry.bucket, entry.direction)
        path = folder / f"{_slug(_sizes(entry.shape))}-{_slug(entry.where.gpu)}.json"
        write_atomically(path, json.dumps(to_json(entry), indent=1) + "\n")
        return path

    def entries(self, where: Where) -> Iterator[Entry]:
        """All entries to be trusted on such a machine, in the order of their paths."""
        for folder in sorted(self.root.glob("*-*")) if self.root else ():
            yield from _read_all(folder, where)[0]


def default_store() -> Store:
    """The user's, beside the compiled kernels."""
    root = tuning_root()
    return Store(root / "store" if root else None)


def tuning_root() -> Path | None:
    """Where all that tuning keeps between processes lies; None where the user has no cache directory."""
    root = default_root()
    return root / "tuned" if root else None


def _folder(problem: Problem, among: Shape, direction: str) -> str:
    rest = digest([problem_key(problem, direction), asdict(among)])
    return f"{direction}-{problem.dtype}-d{problem.head_dim}-{rest}"


def _sizes(shape: Shape) -> str:
    packed = "" if shape.tokens_q is None else f"-{shape.tokens_q}-{shape.tokens_k}"
    return f"{shape}{packed}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _read_all(folder: Path, where: Where) -> tuple[list[Entry], list[tuple[Path, str]]]:
    """The entries in `folder` that can be trusted, and the files that cannot, with the reason."""
    trusted, ignored = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            entry = from_json(json.loads(path.read_bytes()))
            why = _doubt(entry, where)
        except (OSError, *DAMAGE) as error:
            why = f"it is damaged ({type(error).__name__}: {error})"
        if why:
            ignored.append((path, why))
        else:
            trusted.append(entry)
    return trusted, ignored


def _doubt(entry: Entry, where: Where) -> str:
    """Why an entry holds no more; empty where it does."""
    if difference := entry.where.difference(where):
        return f"it was measured with {difference}"
    if plan(entry.spec, direction=entry.direction).tiling != entry.tiling:
        return "its spec is planned otherwise now"
    return ""
