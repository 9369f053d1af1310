from __future__ import annotations

import pytest

from fagen.bench.shapes import NamedShape, paper_shapes, read_shapes
from fagen.errors import SpecError
from fagen.paths import SPECS
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec
from fagen.spec.model import Problem

MODELS = SPECS / "shapes" / "models.yaml"
WHOLE = "{batch: 2, seqlen_q: 16, heads_q: 6, head_dim: 64}"


@pytest.fixture
def written(tmp_path):
    """The shapes of a file that holds this."""

    def read(text: str) -> tuple[NamedShape, ...]:
        (tmp_path / "shapes.yaml").write_text(text)
        return read_shapes(tmp_path / "shapes.yaml")

    return read


def test_the_shipped_file_has_every_kind_of_call():
    shapes = {named.name: named for named in read_shapes(MODELS)}
    assert len(shapes) >= 15
    sizes = [named.shape for named in shapes.values()]
    problems = [named.problem for named in shapes.values()]
    assert any(shape.seqlen_q == 1 < shape.seqlen_k for shape in sizes), "decode"
    assert any(1 < shape.seqlen_q < shape.seqlen_k for shape in sizes), "chunked prefill"
    assert any(shape.seqlen_q >= 128 * 1024 for shape in sizes), "long context"
    assert any(shape.heads_q > shape.heads_kv > 1 for shape in sizes), "GQA"
    assert any(shape.heads_kv == 1 < shape.heads_q for shape in sizes), "MQA"
    assert {problem["problem.head_dim"] for problem in problems} >= {64, 72, 80, 128, 192, 256}
    assert shapes["deepseek_v3_tp8_prefill_4k"].problem["problem.head_dim_v"] == 128
    assert shapes["gpt2_medium_train_1k"].shape == Shape(16, 1024, 1024, 16, 16)


def test_every_shipped_shape_can_be_laid_over_a_spec():
    spec = load_spec(SPECS / "h200_fa3.yaml")
    for named in read_shapes(MODELS):
        problem = load_spec(spec, named.problem).problem
        wanted = {key.removeprefix("problem."): value for key, value in named.problem.items()}
        assert problem == Problem.model_validate({"dtype": "bf16", "layout": "bshd", **wanted}), named.name


def test_what_is_left_out_is_as_the_file_says(written):
    (named,) = written(f"mine: {WHOLE}")
    assert named.name == "mine"
    assert named.shape == Shape(2, 16, 16, 6, 6)
    assert named.problem == {
        "problem.head_dim": 64,
        "problem.head_dim_v": None,
        "problem.mask": "none",
        "problem.softcap": None,
    }


def test_a_shape_says_all_of_the_problem_that_it_is_about(written):
    (named,) = written("mine: {batch: 2, seqlen_q: 16, heads_q: 6, head_dim: 64, layout: bhsd, dtype: fp16}")
    problem = load_spec(SPECS / "h200_fa3_d192.yaml", named.problem).problem  # causal, head_dim_v 128
    assert (problem.head_dim, problem.dim_v, problem.mask) == (64, 64, "none")
    assert (problem.layout, problem.dtype) == ("bhsd", "fp16")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{}", "names no shape"),
        ("mine: 3", r":1: mine: is 3; allowed: a mapping"),
        ("Mine: " + WHOLE, r":1: Mine: is no name of a shape; allowed: lower-case"),
        ("mine: {batch: 2}", r":1: mine\.seqlen_q: is missing"),
        (
            f"a: {WHOLE}\nb: {WHOLE.replace('batch: 2', 'batch: 0')}",
            r":2: b\.batch: is 0; allowed: whole numbers from 1 to",
        ),
        ("mine: " + WHOLE.replace("16", "yes"), r"mine\.seqlen_q: is true \(YAML reads"),
        ("mine: " + WHOLE.replace("64", "63"), r"mine\.head_dim: is 63; allowed: multiples of 8"),
        ("mine: " + WHOLE.replace("}", ", heads_kv: 4}"), r"mine\.heads_q: is 6; allowed: multiples of"),
        ("mine: " + WHOLE.replace("}", ", mask: causl}"), r"mine\.mask: .*did you mean `causal`"),
        ("mine: " + WHOLE.replace("}", ", seqlenk: 4}"), r"mine\.seqlenk: .*did you mean `seqlen_k`"),
    ],
)
def test_what_is_wrong_has_line_key_and_what_is_allowed(written, text, wrong):
    with pytest.raises(SpecError, match=wrong):
        written(text)


def test_all_that_is_wrong_is_said_at_once(written):
    with pytest.raises(SpecError) as caught:
        written(f"a: {{batch: 0, seqlen_q: 16, heads_q: 6, head_dim: 63}}\nb: 3\nc: {WHOLE}")
    assert [issue.key for issue in caught.value.issues] == ["a.batch", "a.head_dim", "b"]


def test_paper_shapes_have_16k_tokens_and_a_hidden_dimension_of_2048():
    found = paper_shapes(load_spec(SPECS / "h200_fa2_d64.yaml"), (1024, 32768))
    assert [(named.name, named.problem, named.shape) for named in found] == [
        (f"d64_{mask}_{length}", {"problem.mask": mask}, Shape(batch, length, length, 32, 32))
        for mask in ("none", "causal")
        for length, batch in ((1024, 16), (32768, 1))
    ]


def test_a_window_stays():
    spec = load_spec(SPECS / "h200_fa2.yaml", {"problem.mask": {"window": [128, None]}})
    (named,) = paper_shapes(spec, (1024,))
    assert load_spec(spec, named.problem) == spec
    assert named.name == "d128_window_1024"
