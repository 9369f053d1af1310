from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch

from fagen.bench.expected import expected, largest_difference, random_inputs
from fagen.bench.peers import FA3, FA4, PEERS, installed
from fagen.plan.launch import Shape
from fagen.spec.model import Problem, Window


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


def test_only_what_is_installed_is_offered(monkeypatch):
    for module in (FA3, "flash_attn", FA4):
        monkeypatch.setitem(sys.modules, module, None)
    assert list(installed()) == ["torch flash", "torch cuDNN"]
    monkeypatch.setitem(sys.modules, FA3, module := ModuleType(FA3))
    module.__spec__ = ModuleSpec(FA3, None)
    assert list(installed()) == ["torch flash", "torch cuDNN", "FA3"]


@pytest.mark.parametrize("name", PEERS)
def test_packed_sequences_are_refused(monkeypatch, fake, name):
    problem = Problem(dtype="bf16", head_dim=64, layout="thd")
    q, k, v, *_ = random_inputs(problem, Shape(1, 16, 16, 1, 1), seed=0, device="cpu")
    with pytest.raises(RuntimeError, match="packed sequences"):
        PEERS[name](problem, q, k, v)


@pytest.mark.parametrize("name", ["torch flash", "torch cuDNN"])
def test_torch_has_no_sliding_window(name):
    problem = Problem(dtype="bf16", head_dim=64, mask=Window(window=(5, 0)))
    inputs = random_inputs(problem, Shape(1, 16, 16, 1, 1), seed=0, device="cpu")
    with pytest.raises(RuntimeError, match="no sliding window"):
        PEERS[name](problem, *inputs)


@pytest.fixture
def fake(monkeypatch):
    """Stands in for FlashAttention-3 and -4: remembers its options and gives q as it came, with an LSE."""
    asked = []

    def flash_attn_func(q, k, v, **options):
        asked.append((tuple(q.shape), options))
        return q, None

    for name in (FA3, "flash_attn", FA4):
        module = ModuleType(name)
        monkeypatch.setattr(module, "flash_attn_func", flash_attn_func, raising=False)
        monkeypatch.setitem(sys.modules, name, module)
    return asked


@pytest.mark.parametrize(("name", "all_keys"), [("FA3", -1), ("FA4", None)])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize(
    ("mask", "causal", "window"),
    [
        ("none", False, (None, None)),
        ("causal", True, (None, None)),
        (Window(window=(7, None)), False, (7, None)),
        (Window(window=(7, 0)), False, (7, 0)),
    ],
)
def test_flash_attention_is_asked_for_the_problem(fake, name, all_keys, layout, mask, causal, window):
    problem = Problem(dtype="bf16", head_dim=64, layout=layout, mask=mask)
    q, k, v = random_inputs(problem, Shape(2, 16, 16, 3, 3), seed=0, device="cpu")
    assert torch.equal(PEERS[name](problem, q, k, v)(), q)
    sides = tuple(all_keys if side is None else side for side in window)
    assert fake == [((2, 16, 3, 64), {"causal": causal, "window_size": sides})]


@pytest.mark.gpu
@pytest.mark.parametrize("name", installed())
def test_peers_are_right_on_a_gpu(name):
    problem = Problem(dtype="bf16", head_dim=128, mask="causal")
    inputs = random_inputs(problem, Shape(2, 256, 256, 4, 4), seed=0, device="cuda")
    exact = expected(problem, inputs)
    out = PEERS[name](problem, *inputs)()
    assert out.shape == exact.out.shape and out.device == torch.device("cuda", 0)
    assert largest_difference(out, exact.out) <= exact.allowed
