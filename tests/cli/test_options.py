from __future__ import annotations

import pytest
import typer

from fagen.cli.options import parse_shape
from fagen.plan.launch import Shape


def test_shape():
    assert parse_shape("2, 128,0,8,2") == Shape(2, 128, 0, 8, 2)


def test_a_shape_reads_back_as_it_prints():
    assert parse_shape(Shape(1, 2, 3, 4, 4)) == Shape(1, 2, 3, 4, 4)


@pytest.mark.parametrize(
    "text", ["", "1,2,3,4", "1,2,3,4,x", "1,-2,3,4,4", "0,2,3,4,4", "1,2,3,4,0", "1,2,3,7,2"]
)
def test_shapes_that_are_refused(text):
    with pytest.raises(typer.BadParameter):
        parse_shape(text)
