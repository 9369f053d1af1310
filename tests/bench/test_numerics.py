from __future__ import annotations

import pytest
from torch import Tensor

from fagen.bench.numerics import Model, Row, Way, measure, ways
from fagen.errors import ArgumentError
from fagen.ops.quantize import Quantized
from fagen.paths import SPECS
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec
from fagen.spec.model import Problem, Spec

SHAPE = Shape(1, 512, 512, 2, 2)


@pytest.fixture(scope="module")
def spec() -> Spec:
    return load_spec(SPECS / "h200_fp8.yaml", {"problem.mask": "none"})


@pytest.fixture(scope="module")
def on_outliers(spec: Spec) -> dict[str, Row]:
    return {str(row.way): row for row in measure(spec, SHAPE, "outliers", 0, Model("cpu"))}


def test_there_is_a_row_for_each_way(spec: Spec, on_outliers: dict[str, Row]) -> None:
    assert list(on_outliers) == [str(way) for way in ways(spec, "cpu")]
    assert not [row for row in on_outliers.values() if row.problem]
    assert all(0 < row.rmse < row.worst for row in on_outliers.values())


def test_16_bits_are_far_better_and_the_transform_helps_against_outliers(on_outliers: dict[str, Row]) -> None:
    rmse = {name: row.rmse for name, row in on_outliers.items()}
    assert rmse["fagen, fp16"] < rmse["standard, fp16"] < rmse["fagen, bf16"]
    assert rmse["fagen, rescale: always, fp16"] < rmse["fagen, fp16"]
    assert 5 * rmse["fagen, bf16"] < rmse["fagen, e4m3, block, Hadamard"]
    assert 1.2 * rmse["fagen, e4m3, head, Hadamard"] < rmse["fagen, e4m3, head"]
    assert rmse["fagen, e4m3, tensor"] < rmse["standard, e4m3, tensor"]


def test_the_transform_changes_little_without_outliers(spec: Spec) -> None:
    rows = {str(row.way): row.rmse for row in measure(spec, SHAPE, "normal", 0, Model("cpu"))}
    assert rows["fagen, e4m3, head, Hadamard"] == pytest.approx(rows["fagen, e4m3, head"], rel=0.1)


def test_what_cannot_run_is_a_row_that_says_why(spec: Spec) -> None:
    class NoQuantize(Model):
        def quantize(self, problem: Problem, way: Way, q: Tensor, k: Tensor, v: Tensor) -> Quantized:
            raise ArgumentError("no\nfor a reason")

    rows = list(measure(spec, Shape(1, 64, 64, 1, 1), "normal", 0, NoQuantize("cpu")))
    assert {row.problem for row in rows} == {"", "no"}
    assert all(bool(row.problem) == bool(row.way.scale) for row in rows)


def test_a_schedule_that_has_no_blocks_leaves_those_out(spec: Spec) -> None:
    wide = load_spec(spec, {"schedule.tile.kv": 96})
    rows = list(measure(wide, Shape(1, 64, 96, 1, 1), "normal", 0, Model("cpu")))
    assert {row.way.scale for row in rows if row.problem} == {"block"}
    assert all("schedule.tile.kv" in row.problem for row in rows if row.problem)


def test_torch_flash_is_there_on_a_gpu_only(spec: Spec) -> None:
    assert Way("torch flash", "fp16") in ways(spec, "cuda:0")
    assert Way("torch flash", "fp16") not in ways(spec, "cpu")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"problem.layout": "thd"}, r"problem.layout: is thd; allowed: bshd, bhsd"),
        ({"problem.softcap": 30.0}, r"problem.softcap: is 30.0; allowed: leaving it out"),
    ],
)
def test_specs_that_it_does_not_take(spec: Spec, overrides: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ways(load_spec(spec, overrides), "cpu")


def test_16_bit_specs_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"problem.dtype: is bf16; allowed: e4m3, e5m2"):
        ways(load_spec(SPECS / "h200_fa3.yaml"), "cpu")
