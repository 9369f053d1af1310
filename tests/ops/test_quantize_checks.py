"""What `fagen.quantize_fp8` refuses, and what torch asks of it; no kernel runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import fagen
from fagen.errors import ArgumentError


def tensor(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.zeros(sizes, dtype=dtype)


NESTED = torch.nested.nested_tensor([torch.zeros(5, 4, 64), torch.zeros(3, 4, 64)], layout=torch.jagged)
UNALIGNED = tensor(2, 8, 260)[:, :5, :256].unflatten(2, (4, 64))


def qkv(**changed: Tensor) -> dict[str, Any]:
    given = {"q": tensor(2, 5, 4, 64), "k": tensor(2, 7, 2, 64), "v": tensor(2, 7, 2, 32)}
    return given | changed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": "row"}, "scale: is 'row'; allowed: 'head', 'block', 'tensor'"),
        ({"hadamard": 1}, "hadamard: is 1; allowed: False, True"),
        ({"dtype": torch.float8_e4m3fn}, "dtype: is torch.float8_e4m3fn; allowed: 'e4m3', 'e5m2'"),
        ({"layout": "thd"}, "layout: is 'thd'; allowed: 'bshd', 'bhsd'"),
        ({"scale": "x" * 1000}, "...xxxxxxxxxxxxx'; allowed: 'head', 'block', 'tensor'"),
        ({"q": NESTED}, "q: is a nested tensor; allowed: one tensor"),
        ({"q": 3}, "q: is a int; allowed: a torch.Tensor"),
        ({"v": tensor(2, 7, 2, 32).float()}, "v: is torch.float32; allowed: torch.float16, torch.bfloat16"),
        ({"k": tensor(2, 7, 2, 64).half()}, "dtype: q is torch.bfloat16, k is torch.float16"),
        ({"k": tensor(7, 2, 64)}, "k: has shape (7, 2, 64); allowed: 4 dimensions (layout: bshd)"),
        (
            {"q": tensor(2, 5, 4, 72)},
            "q: has shape (2, 5, 4, 72), last dimension 72; allowed: multiples of 32",
        ),
        ({"q": tensor(2, 5, 4, 288)}, "last dimension 288; allowed: multiples of 32 up to 256"),
        ({"k": tensor(2, 7, 2, 96)}, "k: has shape (2, 7, 2, 96), last dimension 96; allowed: 64"),
        ({"q": tensor(2, 5, 3, 64)}, "k: heads is 2; allowed: a divisor of q's 3 heads"),
        ({"k": tensor(1, 7, 2, 64), "v": tensor(1, 7, 2, 32)}, "k: batch is 1; allowed: 2, as in q"),
        ({"v": tensor(2, 6, 2, 32)}, "v: sequence is 6; allowed: 7, as in k"),
        ({"q": tensor(2, 5, 4, 128)[..., ::2]}, "q: stride of its last dimension is 2; allowed: 1"),
        ({"q": UNALIGNED}, "q: stride of its sequence dimension is 260 elements; allowed: multiples of 8"),
        ({"q": tensor(2 * 5 * 4 * 64 + 1)[1:].view(2, 5, 4, 64)}, "q: starts 2 bytes past a multiple of 16"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ArgumentError) as caught:
        fagen.quantize_fp8(**qkv() | arguments)
    assert message in str(caught.value)


def test_gradients_are_refused_in_words():
    given = qkv(q=tensor(2, 0, 4, 64).requires_grad_(), k=tensor(2, 0, 2, 64), v=tensor(2, 0, 2, 32))
    found = fagen.quantize_fp8(**given)
    with pytest.raises(ArgumentError, match="quantize_fp8 has no backward"):
        found.q.float().sum().backward()


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize(
    ("scale", "of_q", "of_k"),
    [("block", (2, 4, 2), (2, 2, 3)), ("head", (2, 2), (2, 2)), ("tensor", (1,), (1,))],
)
def test_fake_tensors_have_the_sizes_and_strides_of_real_ones(scale, of_q, of_k, layout):
    def sizes(length: int, heads: int, dim: int) -> tuple[int, ...]:
        return (2, length, heads, dim) if layout == "bshd" else (2, heads, length, dim)

    with FakeTensorMode():
        q, k, v = (
            torch.empty(sizes(*one), dtype=torch.float16)
            for one in ((130, 4, 64), (300, 2, 64), (300, 2, 32))
        )
        found = fagen.quantize_fp8(q, k, v, scale=scale, dtype="e5m2", v_transposed=True, layout=layout)
    assert found.q.shape == q.shape and found.k.shape == k.shape
    assert found.v.shape == (2, 2, 32, 300) and found.v.stride() == (2 * 32 * 304, 32 * 304, 304, 1)
    assert {x.dtype for x in found[:3]} == {torch.float8_e5m2}
    assert [tuple(x.shape) for x in found[3:]] == [of_q, of_k, of_k]
    assert {x.dtype for x in found[3:]} == {torch.float32}
