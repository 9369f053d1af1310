"""Which specs compete for a shape."""

from __future__ import annotations

import pytest

from fagen.bench.shapes import NamedShape, paper_shapes, read_shapes
from fagen.paths import SPECS
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec
from fagen.spec.model import Spec
from fagen.tune.question import questions

MODELS = SPECS / "shapes" / "models.yaml"


def made_for(head_dim: int, head_dim_v: int | None = None, name: str = "") -> Spec:
    problem = {"dtype": "bf16", "head_dim": head_dim, "head_dim_v": head_dim_v}
    own = name or f"of_{head_dim}_{head_dim_v or head_dim}"
    return load_spec({"name": own, "family": "v3", "arch": "sm_90a", "problem": problem})


def competing(head_dim: int, head_dim_v: int | None, *specs: Spec) -> set[str]:
    """Names of the specs that may answer for a shape of these head sizes."""
    problem = {"problem.head_dim": head_dim, "problem.head_dim_v": head_dim_v}
    named = NamedShape("mine", problem, Shape(1, 64, 64, 1, 1))
    (question,) = questions((spec, [named]) for spec in specs)
    assert {spec.problem.head_dim for spec in question.specs.values()} == {head_dim}
    return set(question.specs)


ALL = (made_for(64), made_for(64, name="short"), made_for(96), made_for(128), made_for(192, 128))


@pytest.mark.parametrize(
    ("head_dim", "head_dim_v", "expected"),
    [
        (64, None, {"of_64_64", "short"}),
        (128, None, {"of_128_128"}),
        (192, 128, {"of_192_128"}),
        (72, None, {"of_96_96"}),
        (8, None, {"of_64_64", "short"}),
        (128, 64, {"of_128_128"}),
        (64, 128, {"of_128_128"}),
    ],
)
def test_those_made_for_its_head_sizes_or_the_next_larger_ones(
    head_dim: int, head_dim_v: int | None, expected: set[str]
) -> None:
    assert competing(head_dim, head_dim_v, *ALL) == expected
    assert competing(head_dim, head_dim_v, *reversed(ALL)) == expected


@pytest.mark.parametrize(("head_dim", "head_dim_v"), [(256, None), (200, 64), (192, None)])
def test_all_where_none_has_as_many_columns(head_dim: int, head_dim_v: int | None) -> None:
    assert competing(head_dim, head_dim_v, *ALL) == {spec.name for spec in ALL}


def test_one_spec_takes_whatever_it_can() -> None:
    for head_dim in (64, 128, 256):
        assert competing(head_dim, None, made_for(128)) == {"of_128_128"}


def test_specs_with_another_problem_do_not_compete() -> None:
    fp16 = load_spec(made_for(128), {"problem.dtype": "fp16", "name": "half"})
    named = NamedShape("mine", {"problem.head_dim": 128}, Shape(1, 64, 64, 1, 1))
    asked = questions((spec, [named]) for spec in (made_for(96), made_for(128), fp16))
    assert [set(question.specs) for question in asked] == [{"of_128_128"}, {"half"}]


def test_the_papers_shapes_are_for_each_specs_own_head_sizes() -> None:
    specs = (made_for(64), made_for(128))
    asked = questions((spec, paper_shapes(spec, (1024,))) for spec in specs)
    assert [list(question.specs) for question in asked] == [["of_64_64"]] * 2 + [["of_128_128"]] * 2


def test_the_shipped_specs_share_out_the_models_shapes() -> None:
    specs = [load_spec(path) for path in sorted(SPECS.glob("h200_fa3*.yaml"))]
    shapes = read_shapes(MODELS)
    found = {question.name: set(question.specs) for question in questions((spec, shapes) for spec in specs)}
    assert set(found) == {named.name for named in shapes}
    assert found["llama3_8b_train_8k"] == {"h200_fa3"}
    assert found["gpt2_medium_train_1k"] == {"h200_fa3_d64", "h200_fa3_d64_short"}
    assert found["dit_xl_2_512"] == found["vit_h_14_train"] == {"h200_fa3_d96"}
    assert found["deepseek_v3_tp8_prefill_4k"] == {"h200_fa3_d192"}
    assert found["gemma2_9b_prefill_8k"] == {"h200_fa3_d256"}
