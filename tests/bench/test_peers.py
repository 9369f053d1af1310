from __future__ import annotations

import pytest
import torch

from fagen.bench.expected import expected, largest_difference, random_inputs
from fagen.bench.peers import PEERS
from fagen.plan.launch import Shape
from fagen.spec.model import Problem


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_torch_flash_is_right(mask, layout, dtype):
    problem = Problem(dtype=dtype, head_dim=64, layout=layout, mask=mask)
    inputs = random_inputs(problem, Shape(2, 48, 48, 3, 3), seed=0, device="cpu")  # torch has one for the CPU
    exact = expected(problem, inputs)
    assert largest_difference(PEERS["torch flash"](problem, *inputs)(), exact.out) <= exact.allowed


def test_torch_cudnn_says_so_where_it_cannot_run():
    problem = Problem(dtype="bf16", head_dim=64)
    inputs = random_inputs(problem, Shape(1, 16, 16, 1, 1), seed=0, device="cpu")
    with pytest.raises(RuntimeError):
        PEERS["torch cuDNN"](problem, *inputs)()


@pytest.mark.gpu
@pytest.mark.parametrize("name", PEERS)
def test_peers_are_right_on_a_gpu(name):
    problem = Problem(dtype="bf16", head_dim=128, mask="causal")
    inputs = random_inputs(problem, Shape(2, 256, 256, 4, 4), seed=0, device="cuda")
    exact = expected(problem, inputs)
    out = PEERS[name](problem, *inputs)()
    assert out.shape == exact.out.shape and out.device == torch.device("cuda", 0)
    assert largest_difference(out, exact.out) <= exact.allowed
