"""What ships in specs/tuned: what `fagen tune` found for shapes of models."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from fagen.bench.shapes import NamedShape, read_shapes
from fagen.paths import SPECS
from fagen.spec.load import load_spec
from fagen.spec.model import Spec
from fagen.tune.tuned import tuned_for

MODELS = SPECS / "shapes" / "models.yaml"
TUNED = SPECS / "tuned"


@dataclass(frozen=True)
class Winner:
    """The fastest spec for a shape on its own device."""

    spec: Spec
    named: NamedShape


@functools.cache
def winners(folder: Path = TUNED) -> tuple[Winner, ...]:
    """Those of `folder` whose names say that they were tuned for a shape of MODELS."""
    shapes = read_shapes(MODELS)
    named = ((path, tuned_for(path.stem, shapes)) for path in sorted(folder.glob("*.yaml")))
    return tuple(Winner(load_spec(path), shape) for path, shape in named if shape)
