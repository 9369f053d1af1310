"""Which element of 8-bit q, k and v goes with which descale: spelled out, one row at a time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from fagen.ops import reference
from fagen.ops.descales import Descales
from fagen.ops.reference_fp8 import dequantized, quantized
from fagen.spec.model import Problem

HEADS_Q, HEADS_KV, ROWS_Q, ROWS_K, COLUMNS = 4, 2, 150, 260, 64


def problem(**keys: Any) -> Problem:
    return Problem.model_validate({"dtype": "e4m3", "head_dim": COLUMNS, "passes": ("forward",), **keys})


def numbers(*sizes: int, seed: int) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


def bshd(dtype: torch.dtype = torch.float8_e4m3fn) -> tuple[Tensor, Tensor, Tensor]:
    sizes = ((ROWS_Q, HEADS_Q), (ROWS_K, HEADS_KV), (ROWS_K, HEADS_KV))
    q, k, v = (numbers(2, *size, COLUMNS, seed=i).to(dtype) for i, size in enumerate(sizes))
    return q, k, v


def by_head() -> Descales:
    return Descales(*(numbers(2, HEADS_KV, seed=i).exp() for i in range(3)))


def assert_rows(found: Tensor, x: Tensor, descale_of: Any, sizes: tuple[int, ...]) -> None:
    assert found.shape == x.shape and found.dtype == torch.float32
    for at in itertools.product(*map(range, sizes)):
        assert torch.equal(found[at], x[at].float() * descale_of(*at)), at


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_head_of_a_sequence_has_one(dtype: torch.dtype) -> None:
    given, descales = bshd(dtype), by_head()
    q, k, v = dequantized(problem(), *given, descales)
    group = HEADS_Q // HEADS_KV
    assert_rows(q, given[0], lambda b, _, h: descales.q_descale[b, h // group], given[0].shape[:3])
    assert_rows(k, given[1], lambda b, _, h: descales.k_descale[b, h], given[1].shape[:3])
    assert_rows(v, given[2], lambda b, _, h: descales.v_descale[b, h], given[2].shape[:3])


def test_one_for_all() -> None:
    given, one = bshd(), Descales(*(torch.tensor([x]) for x in (0.5, 2.0, 3.0)))
    for found, x, descale in zip(dequantized(problem(), *given, one), given, one, strict=True):
        assert torch.equal(found, x.float() * descale)


def test_a_block_of_rows_has_one() -> None:
    q, k, v = (x.transpose(1, 2) for x in bshd())
    descales = Descales(*(numbers(*size, seed=5).exp() for size in ((2, 4, 2), (2, 2, 3), (2, 2, 3))))
    found = dequantized(problem(layout="bhsd", fp8={"scale": "block"}), q, k, v, descales)
    for own, x, descale in zip(found, (q, k, v), descales, strict=True):
        assert_rows(own, x, lambda b, h, s, descale=descale: descale[b, h, s // 128], x.shape[:3])


def test_packed_sequences_have_their_own() -> None:
    q, k, v = (x.flatten(0, 1) for x in bshd())
    offsets_q, offsets_k = torch.tensor([0, 30, 30, 290]), torch.tensor([0, 500, 510, 515])
    descales = Descales(*(numbers(3, HEADS_KV, seed=i).exp() for i in range(3)))
    found = dequantized(problem(layout="thd"), q, k, v, descales, (offsets_q, offsets_k))
    for own, x, descale, offsets in zip(
        found, (q, k, v), descales, (offsets_q, offsets_k, offsets_k), strict=True
    ):
        group = x.shape[1] // HEADS_KV

        def descale_of(token: int, head: int) -> Tensor:
            sequence = int((offsets[1:] <= token).sum())  # noqa: B023
            return descale[sequence, head // group] if sequence < 3 else torch.tensor(1.0)  # noqa: B023

        assert_rows(own, x, descale_of, x.shape[:2])


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_a_transposed_v_stands_for_the_same(layout: str) -> None:
    q, k, v = bshd() if layout == "bshd" else (x.transpose(1, 2) for x in bshd())
    vt = v.permute(0, 2, 3, 1) if layout == "bshd" else v.mT
    given = by_head()
    _, _, expected = dequantized(problem(layout=layout), q, k, v, given)
    _, _, found = dequantized(problem(layout=layout, v_transposed=True), q, k, vt, given)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"layout": "bhsd", "fp8": {"scale": "block"}},
        {"fp8": {"scale": "block"}},
        {"layout": "thd"},
        {"v_transposed": True},
        {"layout": "bhsd", "v_transposed": True},
    ],
    ids=str,
)
def test_what_is_quantised_stands_for_what_it_was(dtype: str, keys: dict[str, Any]) -> None:
    of = problem(dtype=dtype, **keys)
    given = bshd(torch.float32)
    if of.layout == "bhsd":
        given = tuple(x.transpose(1, 2).contiguous() for x in given)
    offsets = ()
    if of.layout == "thd":
        given = tuple(x.flatten(0, 1) for x in given)
        offsets = tuple(rows * torch.arange(3) for rows in (ROWS_Q, ROWS_K))
    tensors, descales = quantized(of, *given, batch=2)
    assert not of.v_transposed or (tensors[2].stride(-1) == 1 and tensors[2].stride(-2) % 16 == 0)
    bits = {"e4m3": 3, "e5m2": 2}[dtype]
    for found, x in zip(dequantized(of, *tensors, descales, offsets), given, strict=True):
        assert found.shape == x.shape
        assert ((found - x).abs() <= 2 ** -(bits + 1) * x.abs() + 1e-4).all()
    largest = max(x.float().abs().max().item() for x in tensors) / torch.finfo(tensors[0].dtype).max
    assert largest == 1 or (of.scales_blocks and largest > 0.5)  # descales of blocks are powers of two


def test_the_relative_error_is_that_of_all_elements_together() -> None:
    exact = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    assert reference.relative_error(exact + torch.tensor([[0.0, 0.0], [0.3, 0.4]]), exact) == pytest.approx(
        0.1
    )
    assert reference.allowed_error(problem(), exact, exact) == 6e-2
    nan = reference.relative_error(exact * float("nan"), exact)
    assert nan != nan
