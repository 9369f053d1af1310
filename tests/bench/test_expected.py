from __future__ import annotations

import math

import pytest
import torch

from fagen.bench.expected import (
    expected,
    expected_gradients,
    largest_difference,
    must_fit,
    random_inputs,
    random_like,
)
from fagen.errors import ArgumentError
from fagen.ops import reference
from fagen.ops.reference_gradients import gradients
from fagen.plan.launch import Shape
from fagen.spec.model import Problem, Window

INF = math.inf


@pytest.mark.parametrize(
    ("found", "exact", "difference"),
    [([1.0, 2.0], [1.5, 2.0], 0.5), ([-INF, 1.0], [-INF, 1.0], 0.0), ([-INF], [1.0], INF), ([], [], 0.0)],
)
def test_largest_difference(found, exact, difference):
    assert largest_difference(torch.tensor(found), torch.tensor(exact, dtype=torch.float64)) == difference


def test_largest_difference_to_nan_is_nan():
    assert math.isnan(largest_difference(torch.tensor([math.nan, 1.0]), torch.ones(2, dtype=torch.float64)))


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_head_by_head_is_the_reference(layout):
    problem = Problem(dtype="bf16", head_dim=8, head_dim_v=16, layout=layout, mask="causal")
    inputs = random_inputs(problem, Shape(2, 5, 7, 4, 2), seed=0, device="cpu")
    found = expected(problem, inputs)
    out, lse = reference.attention(problem, *inputs)
    torch.testing.assert_close(found.out, out)
    torch.testing.assert_close(found.lse, lse)
    plain, _ = reference.plain_attention(problem, *inputs)
    assert found.allowed == pytest.approx(reference.allowed_error(problem, plain, out), rel=0.1)


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("mask", ["none", "causal", Window(window=(3, 1))], ids=str)
def test_long_sequences_a_few_rows_at_a_time_are_the_reference(monkeypatch, layout, mask):
    problem = Problem(dtype="bf16", head_dim=8, head_dim_v=16, layout=layout, mask=mask)
    inputs = random_inputs(problem, Shape(2, 9, 13, 4, 2), seed=0, device="cpu")
    dout = random_like(expected(problem, inputs).out.bfloat16(), seed=1)
    whole, whole_gradients = expected(problem, inputs), expected_gradients(problem, inputs, dout)
    monkeypatch.setattr("fagen.bench.expected.SCORES_AT_ONCE", 2 * 13 * 2)
    found = expected(problem, inputs)
    torch.testing.assert_close(found.out, whole.out)
    torch.testing.assert_close(found.lse, whole.lse)
    assert found.allowed == pytest.approx(whole.allowed, rel=0.2)
    gradients_found = expected_gradients(problem, inputs, dout)
    for own, wanted in zip(gradients_found.exact, whole_gradients.exact, strict=True):
        torch.testing.assert_close(own, wanted)
    assert gradients_found.allowed == pytest.approx(whole_gradients.allowed, rel=1.0)


def test_inputs_have_the_layout_and_depend_on_the_seed():
    problem = Problem(dtype="fp16", head_dim=8, head_dim_v=16, layout="bhsd")
    shape = Shape(2, 5, 7, 4, 2)
    q, k, v = random_inputs(problem, shape, seed=0, device="cpu")
    assert [tuple(x.shape) for x in (q, k, v)] == [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 16)]
    assert q.dtype == torch.float16
    assert torch.equal(q, random_inputs(problem, shape, seed=0, device="cpu")[0])
    assert not torch.equal(q, random_inputs(problem, shape, seed=1, device="cpu")[0])


def out_of_memory():
    raise torch.OutOfMemoryError


TOO_LARGE = {
    "gpu": out_of_memory,
    "cpu": lambda: torch.empty(2**60, dtype=torch.int8),
    "bytes": lambda: torch.empty(2**62),
    "elements": lambda: torch.empty(2**40, 2**40),
}


@pytest.mark.parametrize("how", TOO_LARGE)
def test_too_large_names_the_shape(how):
    with pytest.raises(ArgumentError, match=r"1,16,32,4,2.* 8,192 bytes"), must_fit(Shape(1, 16, 32, 4, 2)):
        TOO_LARGE[how]()


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="size of tensor a"), must_fit(Shape(1, 16, 32, 4, 2)):
        _ = torch.ones(2) + torch.ones(3)


def test_packed_inputs_are_sequences_of_one_length():
    batched = Problem(dtype="bf16", head_dim=8, head_dim_v=16, mask="causal")
    packed = batched.model_copy(update={"layout": "thd"})
    shape = Shape(2, 5, 7, 4, 2)
    q, k, v, cu_q, cu_k, *longest = random_inputs(packed, shape, seed=0, device="cpu")
    assert [tuple(x.shape) for x in (q, k, v)] == [(10, 4, 8), (14, 2, 8), (14, 2, 16)]
    assert (cu_q.tolist(), cu_k.tolist(), longest) == ([0, 5, 10], [0, 7, 14], [5, 7])
    assert cu_q.dtype == cu_k.dtype == torch.int32
    found = expected(packed, (q, k, v, cu_q, cu_k, *longest))
    alike = expected(batched, tuple(x.unflatten(0, (2, -1)) for x in (q, k, v)))
    torch.testing.assert_close(found.out, alike.out.flatten(0, 1))
    torch.testing.assert_close(found.lse, alike.lse.transpose(0, 1).flatten(1))
    assert found.allowed == pytest.approx(alike.allowed)


@pytest.mark.parametrize(
    "keys",
    [{}, {"layout": "thd"}, {"layout": "bhsd", "fp8": {"scale": "block"}}, {"v_transposed": True}],
    ids=str,
)
def test_8_bit_inputs_stand_for_standard_normal_ones(keys):
    problem = Problem.model_validate(
        {"dtype": "e4m3", "head_dim": 64, "mask": "causal", "passes": ("forward",), **keys}
    )
    sixteen = Problem(dtype="bf16", head_dim=64, mask="causal", layout=problem.layout)
    shape = Shape(2, 20, 33, 4, 2)
    inputs = random_inputs(problem, shape, seed=0, device="cpu")
    assert len(inputs) == 10 and all(x.dtype == torch.float8_e4m3fn for x in inputs[:3])
    assert [x is None for x in inputs[3:7]] == [problem.layout != "thd"] * 4
    found = expected(problem, inputs)
    alike = expected(sixteen, random_inputs(sixteen, shape, seed=0, device="cpu"))
    assert found.allowed == 6e-2 and found.out.dtype == torch.float64
    assert reference.relative_error(found.out, alike.out) < 0.1  # each number rounded to 8 bits
    assert largest_difference(found.lse, alike.lse) < 0.2
    assert found.error(1.05 * found.out) == pytest.approx(0.05)
    assert found.error(found.out + 0.5 * torch.randn_like(found.out)) > found.allowed
    assert math.isnan(found.error(math.nan * found.out))


def test_the_error_of_8_bit_out_is_beyond_that_of_rounding_it():
    problem = Problem(dtype="e4m3", head_dim=64, passes=("forward",))
    found = expected(problem, random_inputs(problem, Shape(1, 40, 300, 2, 1), seed=0, device="cpu"))
    rounded = found.out.to(torch.float8_e4m3fn)
    assert found.error(rounded) == 0 < 0.02 < found.error(rounded.double())
    noise = torch.randn_like(found.out) * found.out.square().mean().sqrt()
    assert 0 < found.error((found.out + 0.03 * noise).to(rounded.dtype)) < 0.03
    assert found.error((found.out + 0.2 * noise).to(rounded.dtype)) > found.allowed
    assert found.error(torch.zeros_like(rounded)) > 0.9
    assert math.isnan(found.error(torch.full_like(found.out, math.nan).to(rounded.dtype)))


@pytest.mark.parametrize(("layout", "scale"), [("bshd", "tensor"), ("thd", "tensor"), ("bshd", "block")])
def test_8_bit_inputs_have_the_descales_that_are_asked_for(layout, scale):
    fp8 = {"scale": "block"} if scale == "block" else None
    problem = Problem.model_validate(
        {"dtype": "e4m3", "head_dim": 64, "layout": layout, "passes": ("forward",), "fp8": fp8}
    )
    inputs = random_inputs(problem, Shape(2, 20, 33, 4, 2), seed=0, device="cpu", scale=scale)
    assert [tuple(x.shape) for x in inputs[-3:]] == (
        [(1,)] * 3 if scale == "tensor" else [(2, 4, 1), (2, 2, 1), (2, 2, 1)]
    )
    assert expected(problem, inputs).out.isfinite().all()


def test_the_error_of_16_bits_is_the_largest_absolute_one():
    problem = Problem(dtype="fp16", head_dim=8)
    found = expected(problem, random_inputs(problem, Shape(1, 5, 7, 2, 1), seed=0, device="cpu"))
    wrong = found.out.clone()
    wrong[0, 3, 0, 2] += 0.5
    assert found.error(found.out) == 0 and found.error(wrong) == pytest.approx(0.5)


def test_gradients_are_right_within_what_each_is_allowed():
    problem = Problem(dtype="fp16", head_dim=8, mask="causal")
    inputs = random_inputs(problem, Shape(1, 5, 7, 2, 1), seed=0, device="cpu")
    dout = random_like(inputs[0], seed=1)
    found = expected_gradients(problem, inputs, dout)
    exact = gradients(problem, *inputs, dout=dout)
    assert found.has(exact) and found.errors(exact) == (0, 0, 0)
    for which, most in enumerate(found.allowed):
        for added, right in ((0.9 * most, True), (1.1 * most, False), (math.nan, False)):
            wrong = [x.clone() for x in exact]
            wrong[which][0, 3, 0, 2] += added
            assert found.has(wrong) == right


def test_a_result_of_other_sizes_is_no_result():
    exact = torch.zeros(2, 3, dtype=torch.float64)
    for sizes in ((3,), (1, 3), (1, 2, 3), (3, 2)):
        with pytest.raises(ArgumentError, match=r"result: is .*; allowed: \(2, 3\)"):
            largest_difference(torch.zeros(sizes), exact)
