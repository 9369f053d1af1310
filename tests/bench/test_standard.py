from __future__ import annotations

import pytest

from fagen.bench import passes
from fagen.bench.expected import expected, expected_gradients, largest_difference, random_inputs, random_like
from fagen.bench.standard import standard_attention
from fagen.plan.launch import Shape
from fagen.spec.model import Problem


@pytest.mark.parametrize("queries", [48, 20])
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_both_passes_of_standard_attention_are_right(dtype, mask, queries):
    problem = Problem(dtype=dtype, head_dim=64, layout="bhsd", mask=mask)
    inputs = random_inputs(problem, Shape(2, queries, 48, 3, 3), seed=0, device="cpu")

    def attention():
        return standard_attention(*inputs, causal=mask == "causal")

    exact = expected(problem, inputs)
    out = passes.forward(attention)()
    assert not out.requires_grad
    assert largest_difference(out, exact.out) <= exact.allowed
    dout = random_like(out, seed=1)
    wanted = expected_gradients(problem, inputs, dout)
    gradients = passes.backward(attention, inputs, dout)
    assert wanted.has(gradients())
    assert wanted.has(gradients()), "a second call starts from the same forward"
