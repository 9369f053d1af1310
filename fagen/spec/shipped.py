"""The specs that come with fagen."""

from __future__ import annotations

import functools

from fagen.paths import SPECS
from fagen.spec.load import load_spec
from fagen.spec.model import Spec


@functools.cache
def shipped_specs() -> tuple[Spec, ...]:
    """Those of specs/, by name."""
    return tuple(load_spec(path) for path in sorted(SPECS.glob("*.yaml")))
