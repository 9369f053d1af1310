from __future__ import annotations

import pytest
import torch

from fagen.bench.distributions import DISTRIBUTIONS, draw_inputs
from fagen.plan.launch import Shape
from fagen.spec.model import Problem

PROBLEM = Problem(dtype="fp16", head_dim=64, head_dim_v=128)
SHAPE = Shape(2, 300, 500, 4, 2)


@pytest.mark.parametrize(
    ("name", "mean", "variance", "beyond_5"),
    [("normal", 0.0, 1.0, 0.0), ("outliers", 0.0, 1.1, 0.00062), ("shifted", 1.0, 1.0, 0.0)],
)
def test_moments(name: str, mean: float, variance: float, beyond_5: float) -> None:
    # Of elements with an outlier, normal(0, 101), 62% are beyond 5.
    x = DISTRIBUTIONS[name]((2000, 1000), torch.Generator().manual_seed(0))
    assert x.mean().item() == pytest.approx(mean, abs=0.01)
    assert x.var().item() == pytest.approx(variance, rel=0.03)
    assert ((x - mean).abs() > 5).float().mean().item() == pytest.approx(beyond_5, abs=1e-4)


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_inputs_are_in_the_layout_and_depend_on_the_seed(layout: str) -> None:
    problem = PROBLEM.model_copy(update={"layout": layout})
    q, k, v = draw_inputs(DISTRIBUTIONS["normal"], problem, SHAPE, 0, "cpu")
    sizes = [(2, 300, 4, 64), (2, 500, 2, 64), (2, 500, 2, 128)]
    if layout == "bhsd":
        sizes = [(batch, heads, rows, dim) for batch, rows, heads, dim in sizes]
    assert [x.shape for x in (q, k, v)] == sizes and q.dtype == torch.float32
    assert torch.equal(q, draw_inputs(DISTRIBUTIONS["normal"], problem, SHAPE, 0, "cpu")[0])
    assert not torch.equal(q, draw_inputs(DISTRIBUTIONS["normal"], problem, SHAPE, 1, "cpu")[0])
