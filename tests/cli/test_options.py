from __future__ import annotations

import pytest
import typer

from fagen.cli.options import in_a_directory, parse_shape
from fagen.plan.launch import Shape


def test_shape():
    assert parse_shape("2, 128,0,8,2") == Shape(2, 128, 0, 8, 2)


def test_a_shape_reads_back_as_it_prints():
    assert parse_shape(Shape(1, 2, 3, 4, 4)) == Shape(1, 2, 3, 4, 4)


@pytest.mark.parametrize("exists", [False, True])
def test_a_file_that_may_not_be_written_is_refused(tmp_path, monkeypatch, exists):
    file = tmp_path / "out"
    if exists:
        file.touch()
    assert in_a_directory(file) == file and in_a_directory(None) is None
    closed = {file if exists else tmp_path}
    monkeypatch.setattr("os.access", lambda path, mode: path not in closed)  # root may write anywhere
    with pytest.raises(typer.BadParameter, match="may not be written"):
        in_a_directory(file)


@pytest.mark.parametrize(
    "text",
    ["", "1,2,3,4", "1,2,3,4,x", "1,-2,3,4,4", "0,2,3,4,4", "1,2,3,4,0", "1,2,3,7,2", f"1,{2**31},3,4,4"],
)
def test_shapes_that_are_refused(text):
    with pytest.raises(typer.BadParameter):
        parse_shape(text)
