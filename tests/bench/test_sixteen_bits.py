from __future__ import annotations

from typing import Any

import pytest

from fagen.bench.sixteen_bits import in_16_bits
from fagen.paths import SPECS
from fagen.spec.load import load_spec

FP8: dict[str, Any] = {"problem.v_transposed": True, "problem.fp8.scale": "block", "problem.mask": "none"}


def test_in_16_bits_is_the_same_attention() -> None:
    problem = in_16_bits(load_spec(SPECS / "h200_fp8.yaml", FP8), "bf16").problem
    assert problem.dtype == problem.dtype_out == "bf16" and problem.fp8 is None
    assert (problem.mask, problem.head_dim, problem.v_transposed) == ("none", 128, False)
    assert problem.passes == ("forward",)


@pytest.mark.parametrize("size", ["", "_d64", "_d256"])
def test_its_schedule_is_that_of_the_shipped_spec_for_such_heads(size: str) -> None:
    shipped = load_spec(SPECS / f"h200_fa3{size}.yaml")
    found = in_16_bits(load_spec(SPECS / f"h200_fp8{size}.yaml"), "bf16")
    assert found.schedule.model_dump(exclude_unset=True) == shipped.schedule.model_dump(exclude_unset=True)
    assert (found.family, found.device) == ("v3", "h200")


def test_where_none_is_shipped_it_is_the_planners() -> None:
    assert in_16_bits(load_spec(SPECS / "h200_fp8.yaml"), "fp16").schedule.model_fields_set == set()
