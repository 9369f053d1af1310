from __future__ import annotations

import pytest
import torch

from fagen.bench.expected import expected, expected_gradients, largest_difference, random_inputs, random_like
from fagen.bench.peers.adapter import Call
from fagen.bench.peers.installed import installed
from fagen.plan.launch import Shape
from fagen.spec.model import Problem

pytestmark = pytest.mark.gpu

CASES = {
    "square": ("none", Shape(2, 256, 256, 4, 4)),
    "causal": ("causal", Shape(2, 256, 256, 4, 4)),
    "GQA": ("causal", Shape(2, 256, 256, 8, 2)),
    "more keys": ("none", Shape(2, 100, 256, 8, 2)),
    "causal, more keys": ("causal", Shape(2, 100, 256, 8, 2)),
    "decode": ("none", Shape(4, 1, 512, 8, 2)),
}
REFUSED = (
    "aligned top-left",
    "no backward",
    "No available kernel",  # what torch says of a backend
    "cudnnGraphNotSupportedError",
)
SIXTEEN = Problem(dtype="bf16", head_dim=128)
EIGHT = Problem(dtype="e4m3", head_dim=128, passes=("forward",))


@pytest.fixture(params=CASES)
def mask_and_shape(request):
    return CASES[request.param]


@pytest.fixture
def case(mask_and_shape):
    """A problem and its inputs."""
    mask, shape = mask_and_shape
    problem = SIXTEEN.model_copy(update={"mask": mask})
    return problem, random_inputs(problem, shape, seed=0, device="cuda")


def called(call: Call):
    """What it gives; a peer that says that it has no such thing is no failure."""
    try:
        return call()
    except Exception as error:  # libraries have classes of their own
        said = f"{type(error).__name__}: {error}"
        if any(words in said for words in REFUSED):
            pytest.skip(said)
        raise


@pytest.mark.parametrize("name", installed(SIXTEEN))
def test_installed_peers_are_right(case, name):
    problem, inputs = case
    exact = expected(problem, inputs)
    out = called(lambda: installed(problem)[name].adapter(problem, *inputs)())
    assert out.shape == exact.out.shape and out.device == torch.device("cuda", 0)
    assert largest_difference(out, exact.out) <= exact.allowed


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("name", installed(EIGHT))
def test_installed_peers_of_8_bits_are_right(mask_and_shape, head_dim, name):
    mask, shape = mask_and_shape
    problem = EIGHT.model_copy(update={"mask": mask, "head_dim": head_dim})
    inputs = random_inputs(problem, shape, seed=0, device="cuda", scale="tensor")
    exact = expected(problem, inputs)
    out = called(lambda: installed(problem)[name].adapter(problem, *inputs[:3], *inputs[-3:])())
    assert out.shape == exact.out.shape and out.device == torch.device("cuda", 0)
    assert exact.error(out) <= exact.allowed


@pytest.mark.parametrize("name", installed(SIXTEEN))
def test_installed_peers_gradients_are_right(case, name):
    problem, inputs = case
    dout = random_like(inputs[0], seed=1)
    wanted = expected_gradients(problem, inputs, dout)
    for x in inputs:
        x.requires_grad_()

    def gradients():
        out = installed(problem)[name].adapter(problem, *inputs)()
        return torch.autograd.grad(out, inputs, dout)

    assert wanted.has(called(gradients))
