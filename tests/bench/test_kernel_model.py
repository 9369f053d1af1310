"""The model of v3's arithmetic computes attention, and loses in 8 bits what its kernels lose."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fagen.bench import kernel_model
from fagen.bench.expected import expected, largest_difference, random_inputs
from fagen.ops import reference
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec
from fagen.spec.model import Spec

E4M3 = torch.float8_e4m3fn


def spec_of(schedule: dict[str, Any] | None = None, **problem: Any) -> Spec:
    what = {"dtype": "e4m3", "head_dim": 64, "passes": ["forward"], **problem}
    given = {"tile": {"q": 128, "kv": 64}, **(schedule or {})}
    return load_spec({"name": "tiny", "family": "v3", "arch": "sm_90a", "problem": what, "schedule": given})


@pytest.mark.parametrize(
    "problem",
    [
        {},
        {"mask": "causal"},
        {"mask": {"window": [40, 10]}, "layout": "bhsd"},
        {"dtype": "bf16", "mask": "causal"},
        {"dtype": "fp16"},
        {"fp8": {"scale": "block"}, "mask": "causal"},
        {"dtype": "e5m2", "head_dim_v": 128},
    ],
    ids=str,
)
@pytest.mark.parametrize("rescale", [None, "always", {"lazy": 4.0}], ids=str)
def test_is_attention(problem: dict[str, Any], rescale: Any) -> None:
    spec = spec_of({"softmax": {"rescale": rescale}}, **problem)
    inputs = random_inputs(spec.problem, Shape(2, 150, 200, 4, 2), 0, "cpu")
    found = kernel_model.attention(plan(spec), *inputs[:3], *inputs[7:])
    wanted = expected(spec.problem, inputs)
    assert found.dtype == getattr(torch, {"fp16": "float16"}.get(spec.problem.dtype, "bfloat16"))
    if spec.problem.is_fp8:
        assert reference.relative_error(found, wanted.out) < wanted.allowed
    else:
        assert largest_difference(found, wanted.out) < wanted.allowed


def test_references_move_where_scores_grow() -> None:
    """The last tile comes first, with scores far below those of the first."""
    spec = spec_of(dtype="bf16", mask="none")
    q = torch.ones(1, 64, 1, 64, dtype=torch.bfloat16)
    k = torch.linspace(4, -4, 256).view(1, 256, 1, 1).expand(1, 256, 1, 64).bfloat16()
    v = torch.randn(1, 256, 1, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    wanted = expected(spec.problem, (q, k, v))
    assert largest_difference(kernel_model.attention(plan(spec), q, k, v), wanted.out) < wanted.allowed


def one_key_alone(v_descale: Tensor, scale: str) -> tuple[Tensor, Tensor]:
    """out where every query sees one key of 256 and no other, and what that key's v stands for."""
    spec = spec_of(fp8={"scale": scale})
    q = torch.full((1, 64, 1, 64), 16.0)
    k = torch.zeros(1, 256, 1, 64)
    k[:, 10] = 16.0
    v = torch.randn(1, 256, 1, 64, generator=torch.Generator().manual_seed(0)).to(E4M3)
    blocks = {"head": (1, 1), "block": (1, 1, 1)}[scale], {"head": (1, 1), "block": (1, 1, 2)}[scale]
    descales = torch.ones(blocks[0]), torch.ones(blocks[1]), v_descale
    found = kernel_model.attention(plan(spec), q.to(E4M3), k.to(E4M3), v, *descales)
    return found[0, 0, 0].float(), v[0, 10, 0].float() * v_descale.flatten()[0]


def test_the_largest_p_is_exact() -> None:
    found, wanted = one_key_alone(torch.ones(1, 1), "head")
    assert torch.equal(found, wanted)


def test_it_stays_exact_where_block_descales_of_v_are_powers_of_two_apart() -> None:
    found, wanted = one_key_alone(torch.tensor([[[0.25, 1.0]]]), "block")
    assert torch.equal(found, wanted)
    found, wanted = one_key_alone(torch.tensor([[[0.27, 1.0]]]), "block")
    assert not torch.allclose(found, wanted, rtol=1e-2)
