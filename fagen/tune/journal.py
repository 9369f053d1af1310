"""Every measurement that tuning made, a line of JSON each: what it knows after Ctrl-C, and learns from.

A line is appended as soon as a batch is measured. A rerun finds it there and does not measure again;
`fagen plan --calibrate` fits the cost model to all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fagen.files import naming
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec
from fagen.spec.model import Spec
from fagen.tune.damage import DAMAGE
from fagen.tune.entry import Where, duration, shape_of
from fagen.tune.store import tuning_root

FILE = "journal.jsonl"


@dataclass(frozen=True)
class Record:
    """One variant, timed in turns with a reference."""

    where: Where
    spec: Spec
    kernels: str  # `Variant.key`
    shape: Shape
    direction: str  # "forward" | "backward"
    predicted: float  # seconds, by the cost model
    rounds: int
    seconds: float  # median, on the device
    reference: str  # the key of the variant that it was timed in turns with; its own if with none
    reference_seconds: float

    @property
    def ratio(self) -> float:
        """Time over the reference's: comparable between batches, which the clock differs between."""
        return self.seconds / self.reference_seconds

    @property
    def question(self) -> tuple[Any, ...]:
        """What it answers; the same question need not be asked of a GPU again."""
        return self.where, self.kernels, self.shape, self.direction, self.rounds, self.reference


_RECORD = TypeAdapter(Record)


class Journal:
    """The records in one file. With no path they are kept in memory only."""

    def __init__(self, path: Path | None):
        self._path = path
        self._torn = path is not None and path.is_file() and not path.read_bytes().endswith(b"\n")
        self._known = {record.question: record for record in _read(path)}

    @property
    def is_kept(self) -> bool:
        """Whether later processes will know what this one measured."""
        return self._path is not None

    def check_writable(self) -> None:
        """Raises OSError where nothing can be appended."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.open("a").close()

    def find(
        self, where: Where, kernels: str, shape: Shape, direction: str, rounds: int, reference: str
    ) -> Record | None:
        """What was measured before, if it was."""
        return self._known.get((where, kernels, shape, direction, rounds, reference))

    def append(self, records: list[Record]) -> None:
        """Keep the records of one batch, at once and together. Raises OSError."""
        self._known |= {record.question: record for record in records}
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{json.dumps(_to_json(record))}\n" for record in records)
        with naming(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write("\n" + text if self._torn else text)
        self._torn = False


def default_journal() -> Journal:
    """The user's, beside the compiled kernels."""
    root = tuning_root()
    return Journal(root / FILE if root else None)


def records(root: Path) -> Iterator[Record]:
    """All records under `root` (see `tuning_root`), the oldest first; what cannot be read is left out."""
    return _read(root / FILE)


def _read(path: Path | None) -> Iterator[Record]:
    if path is None or not path.is_file():
        return
    specs: dict[str, Spec] = {}
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                yield _from_json(json.loads(line), specs)
            except DAMAGE:
                continue  # torn by a full disk or a kill, or from another version


def _to_json(record: Record) -> dict[str, Any]:
    return asdict(record) | {"spec": record.spec.model_dump(mode="json", exclude_unset=True)}


def _from_json(data: Mapping[str, Any], specs: dict[str, Spec]) -> Record:
    text = json.dumps(data["spec"])
    if text not in specs:
        specs[text] = load_spec(dict(data["spec"]))  # a text would be read as a path
    seconds = {key: duration(data[key]) for key in ("predicted", "seconds", "reference_seconds")}
    return _RECORD.validate_python({**data, **seconds, "shape": shape_of(data["shape"]), "spec": specs[text]})
