"""Names of tuned specs say what they were tuned for."""

from __future__ import annotations

import pytest

from fagen.bench.shapes import NamedShape, read_shapes
from fagen.paths import SPECS
from fagen.plan.launch import Shape
from fagen.spec.model import NAME_LENGTH
from fagen.tune.tuned import tuned_for, tuned_name

MODELS = read_shapes(SPECS / "shapes" / "models.yaml")
LONG = tuple(NamedShape("a" * 55 + end, {}, Shape(1, 1, 1, 1, 1)) for end in ("", "b", "c"))


@pytest.mark.parametrize("origin", ["h200_fa3", "h200_fa3_d64_short"])
@pytest.mark.parametrize("named", [*MODELS, *LONG], ids=lambda named: named.name)
def test_a_name_leads_back_to_its_shape(origin: str, named: NamedShape) -> None:
    name = tuned_name(origin, named.name)
    assert len(name) <= NAME_LENGTH
    assert tuned_for(name, [*MODELS, *LONG]) is named


def test_shapes_of_other_names_have_files_of_other_names() -> None:
    shapes = ["a_b", "a__b", "a___b", "a_b_", "ab", *("a" * 62 + end for end in ("_b", "__", "_"))]
    assert len({tuned_name("mine", shape) for shape in shapes}) == len(shapes)


@pytest.mark.parametrize("name", ["h200_fa3", "h200_fa3_tuned", "h200_fa3_tuned_mine", MODELS[0].name])
def test_other_names_lead_nowhere(name: str) -> None:
    assert tuned_for(name, MODELS) is None
