from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_workers import FakeWorkers

from fagen.bench.shapes import NamedShape
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec
from fagen.spec.model import Spec
from fagen.tune.budget import Budget
from fagen.tune.journal import Journal
from fagen.tune.outcome import Outcome
from fagen.tune.question import questions
from fagen.tune.store import Store
from fagen.tune.tune import Kept, Tuner
from fagen.tune.watch import Silent

SHORT = NamedShape("short", {"problem.mask": "causal"}, Shape(4, 1024, 1024, 8, 8))

V3: dict[str, Any] = {
    "name": "mine",
    "family": "v3",
    "arch": "sm_90a",
    "device": "h200",
    "problem": {"dtype": "bf16", "head_dim": 64, "mask": "causal", "passes": ["forward"]},
    "schedule": {"tile": {"q": 128, "kv": 128}},
    "tune": {
        "tile.q": [64, 128, 192],
        "tile.kv": [64, 80, 96, 112, 128],
        "stages.q": [1, 2],
        "scheduler": ["persistent", "persistent_lpt"],
    },
}


@dataclass
class Bench:
    """A tuner over fake workers, in a directory of its own."""

    folder: Path

    def tune(
        self,
        *specs: Spec,
        workers: FakeWorkers,
        shapes: Sequence[NamedShape] = (SHORT,),
        exhaustive: bool = False,
        budget: Budget | None = None,
        watch: Any = None,
    ) -> list[Outcome]:
        kept = Kept(Store(self.store), Journal(self.journal), self.out)
        tuner = Tuner(workers, kept, budget or Budget(), exhaustive, watch or Silent())
        return list(tuner.tune(questions((spec, shapes) for spec in specs)))

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    @property
    def out(self) -> Path:
        return self.folder / "tuned"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def mine() -> Callable[..., Spec]:
    """A v3 spec with a search space; keyword arguments replace whole sections."""
    return lambda **sections: load_spec({**V3, **sections})
