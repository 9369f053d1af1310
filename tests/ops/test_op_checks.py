"""Every wrong argument has an error that names it, the value found and what is allowed."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from fagen.errors import ArgumentError
from fagen.ops import checks
from fagen.spec.model import Problem

PROBLEM = Problem(dtype="bf16", head_dim=64)


def meta(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


@pytest.fixture
def any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_check_device", lambda *_: None)


def refusal(q: Any, k: Any, v: Any, problem: Problem = PROBLEM) -> str:
    with pytest.raises(ArgumentError) as error:
        checks.check_tensors(problem, q, k, v)
    return str(error.value)


GOOD = meta(2, 128, 8, 64)


@pytest.mark.parametrize("wrong", [None, [[1.0]], numpy.zeros((2, 128, 8, 64))])
def test_not_a_tensor(wrong: Any) -> None:
    message = refusal(wrong, GOOD, GOOD)
    assert message.startswith("q: ") and type(wrong).__name__ in message and "torch.Tensor" in message


CPU = torch.zeros(2, 128, 8, 64, dtype=torch.bfloat16)


def test_cpu_tensors_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    message = refusal(CPU, CPU, CPU)
    assert message.startswith("q: is on cpu; allowed: CUDA devices") and 'device="emu"' in message
    checks.check_tensors(PROBLEM, CPU, CPU, CPU, device="emu")


def test_cpu_tensors_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    checks.check_tensors(PROBLEM, CPU, CPU, CPU)
    assert refusal(CPU, GOOD, CPU).startswith("k: is on meta; allowed: CUDA devices")


def test_other_tensors_in_the_emulator() -> None:
    with pytest.raises(ArgumentError, match=r"^v: is on meta; allowed: the CPU, where the emulator runs"):
        checks.check_tensors(PROBLEM, CPU, CPU, GOOD, device="emu")


def test_not_dense() -> None:
    x = torch.zeros(2, 128, 8, 64, dtype=torch.bfloat16).to_sparse()
    assert refusal(GOOD, x, GOOD).startswith("k: has layout torch.sparse_coo; allowed: torch.strided")


@pytest.mark.usefixtures("any_device")
@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        (torch.float32, torch.float32, torch.bfloat16),
        (torch.float16, torch.bfloat16, torch.bfloat16),
        (torch.float64, torch.float64, torch.float64),
        (torch.bfloat16, torch.bfloat16, torch.float16),
    ],
)
def test_dtypes(q: torch.dtype, k: torch.dtype, v: torch.dtype) -> None:
    message = refusal(GOOD.to(q), GOOD.to(k), GOOD.to(v))
    assert message == (
        f"dtype: q is {q}, k is {k}, v is {v}; allowed: torch.bfloat16 for all three (problem.dtype: bf16)"
    )


@pytest.mark.usefixtures("any_device")
@pytest.mark.parametrize(
    ("q", "k", "v", "start", "words"),
    [
        ((128, 8, 64), (2, 128, 8, 64), (2, 128, 8, 64), "q: has shape (128, 8, 64)", "4 dimensions"),
        ((2, 128, 8, 32), (2, 128, 8, 64), (2, 128, 8, 64), "q: ", "allowed: 64 (problem.head_dim)"),
        ((2, 128, 8, 64), (2, 128, 8, 72), (2, 128, 8, 64), "k: ", "last dimension 72; allowed: 64"),
        ((2, 128, 8, 64), (2, 128, 8, 64), (2, 128, 8, 72), "v: ", "allowed: 64 (problem.head_dim)"),
        ((2, 128, 8, 64), (3, 128, 8, 64), (3, 128, 8, 64), "k: batch is 3; allowed: 2", "as in q"),
        ((2, 128, 8, 64), (2, 128, 8, 64), (1, 128, 8, 64), "v: batch is 1; allowed: 2", "as in k"),
        ((2, 128, 8, 64), (2, 128, 8, 64), (2, 99, 8, 64), "v: sequence is 99; allowed: 128", "as in k"),
        ((2, 128, 8, 64), (2, 128, 8, 64), (2, 128, 4, 64), "v: heads is 4; allowed: 8", "as in k"),
        ((2, 130, 7, 64), (2, 130, 2, 64), (2, 130, 2, 64), "k: heads is 2", "a divisor of q's 7 heads"),
        ((2, 130, 7, 64), (2, 130, 0, 64), (2, 130, 0, 64), "k: heads is 0", "a divisor of q's 7 heads"),
        # Heads and sequence exchanged.
        ((2, 128, 8, 64), (2, 8, 128, 64), (2, 8, 128, 64), "k: heads is 128", "a divisor of q's 8 heads"),
    ],
)
def test_sizes(q: tuple, k: tuple, v: tuple, start: str, words: str) -> None:
    message = refusal(meta(*q), meta(*k), meta(*v))
    assert message.startswith(start) and words in message
    assert "(batch, sequence, heads, head_dim) (problem.layout: bshd)" in message


@pytest.mark.usefixtures("any_device")
def test_sizes_are_read_in_the_layout() -> None:
    problem = Problem(dtype="bf16", head_dim=64, layout="bhsd", head_dim_v=128)
    checks.check_tensors(problem, meta(2, 8, 33, 64), meta(2, 2, 77, 64), meta(2, 2, 77, 128))
    message = refusal(meta(2, 8, 33, 64), meta(2, 2, 77, 64), meta(2, 2, 77, 64), problem)
    assert "allowed: 128 (problem.head_dim_v)" in message and "(problem.layout: bhsd)" in message


@pytest.mark.usefixtures("any_device")
@pytest.mark.parametrize(
    ("q", "kv"), [((0, 5, 4), (0, 5, 4)), ((2, 0, 4), (2, 5, 4)), ((2, 5, 4), (2, 0, 4))]
)
def test_empty_tensors_are_accepted(q: tuple, kv: tuple) -> None:
    queries, keys = (torch.empty(*sizes, 64, dtype=torch.bfloat16) for sizes in (q, kv))
    checks.check_tensors(PROBLEM, queries, keys, keys)
    checks.check_memory(PROBLEM, queries, keys, keys)


def aligned(*sizes: int) -> Tensor:
    """Zeros from a 16-byte aligned address on."""
    memory = torch.zeros(math.prod(sizes) + 8, dtype=torch.bfloat16)
    skip = -memory.data_ptr() % checks.ALIGNMENT // 2
    return memory[skip : skip + math.prod(sizes)].view(sizes)


def memory_refusal(name: str, x: Tensor) -> str:
    tensors = {key: aligned(*x.shape) for key in "qkv"} | {name: x}
    with pytest.raises(ArgumentError) as error:
        checks.check_memory(PROBLEM, tensors["q"], tensors["k"], tensors["v"])
    return str(error.value)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_last_dimension_is_contiguous(name: str) -> None:
    message = memory_refusal(name, aligned(2, 8, 4, 128)[..., ::2])
    assert message.startswith(f"{name}: stride of its last dimension is 2; allowed: 1")
    message = memory_refusal(name, aligned(2, 8, 64, 4).transpose(2, 3))
    assert message.startswith(f"{name}: stride of its last dimension is 4; allowed: 1")


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_rows_are_aligned(name: str) -> None:
    message = memory_refusal(name, aligned(2, 8, 4, 66)[..., :64])
    assert message.startswith(
        f"{name}: stride of its heads dimension is 66 elements; allowed: multiples of 8"
    )
    assert "16-byte aligned" in message


@pytest.mark.parametrize("offset", [1, 3, 4])
def test_addresses_are_aligned(offset: int) -> None:
    x = aligned(2 * 8 * 4 * 64 + 8)[offset:][: 2 * 8 * 4 * 64].view(2, 8, 4, 64)
    message = memory_refusal("k", x)
    assert message.startswith(f"k: starts {2 * offset} bytes past a multiple of 16; allowed: 16-byte aligned")


def test_strides_that_no_element_uses_are_free() -> None:
    x = aligned(1, 8, 4, 64)
    odd = x.as_strided((1, 8, 1, 64), (3, 256, 5, 1))
    checks.check_memory(PROBLEM, odd, odd, odd)
    checks.check_memory(PROBLEM, *(x[:, :1].expand(3, 8, 4, 64) for _ in "qkv"))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.1, 0.0, 1e-38, 1e38])
def test_scale_out_of_range(wrong: float) -> None:
    with pytest.raises(ArgumentError, match=r"^scale: is .*; allowed: from 1e-30 to 1e30"):
        checks.check_scale(PROBLEM, wrong)


@pytest.mark.parametrize("wrong", ["0.1", torch.tensor(0.1), [0.1]])
def test_scale_of_another_type(wrong: Any) -> None:
    with pytest.raises(
        ArgumentError, match=rf"^scale: is a {type(wrong).__name__}; allowed: a positive float"
    ):
        checks.check_scale(PROBLEM, wrong)


def test_scale() -> None:
    assert checks.check_scale(PROBLEM, None) == 0.125
    assert checks.check_scale(PROBLEM, numpy.float32(0.5)) == 0.5
    assert checks.check_scale(PROBLEM, 1) == 1.0
