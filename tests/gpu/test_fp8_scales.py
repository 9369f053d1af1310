"""Descales of 8-bit attention: each is of its own heads, none is left out, and none given for nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fp8_cases import Fp8Cases, Inputs, changed
from torch import Tensor

import fagen
from fagen.bench.expected import expected
from fagen.errors import ArgumentError
from fagen.ops import reference
from fagen.ops.op import AttentionOp
from fagen.paths import SPECS

NAMES = ("q_descale", "k_descale", "v_descale")


def wide(cases: Fp8Cases, op: AttentionOp) -> Inputs:
    """Standard normal numbers in 8 bits, whose descales are all different, from 0.05 to 8."""
    batch, length, heads_q, heads_kv = (2, 70, 4, 2) if cases.small else (2, 512, 8, 2)
    q, k, v, *packing = cases.inputs(op, batch, length, length, heads_q, heads_kv)[:-3]
    generator = torch.Generator(cases.device).manual_seed(0)
    q, k, v = (torch.randn(x.shape, generator=generator, device=x.device).to(x.dtype) for x in (q, k, v))
    count = 3 * batch * heads_kv
    places = torch.arange(count, device=cases.device).mul(5).remainder(count)
    values = 0.05 * 160 ** (places / (count - 1))
    assert len(set(values.tolist())) == count
    return (q, k, v, *packing, *values.view(3, batch, heads_kv))


@pytest.mark.emulated(head_dim=[128], dtype=["e4m3"], mask=["causal"])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_every_head_has_its_own(fp8_cases: Fp8Cases, dtype: str, head_dim: int, mask: str) -> None:
    op = fp8_cases.op(dtype=dtype, head_dim=head_dim, mask=mask)
    inputs = wide(fp8_cases, op)
    out, _ = fp8_cases.run(op, *inputs)
    exact = expected(op.spec.problem, inputs)
    assert exact.error(out) <= exact.allowed == 6e-2
    for b, h in itertools.product(range(out.shape[0]), range(out.shape[2])):
        assert reference.relative_error(out[b, :, h], exact.out[b, :, h]) <= 6e-2, (b, h)


@pytest.mark.emulated
@pytest.mark.parametrize("scale", ["head", "block"])
@pytest.mark.parametrize("which", [-3, -2, -1])
def test_another_descale_changes_its_own_heads_alone(fp8_cases: Fp8Cases, scale: str, which: int) -> None:
    op = fp8_cases.op(mask="none", fp8={"scale": scale})
    sizes = (2, 40, 150, 4, 2) if fp8_cases.small else (2, 512, 512, 8, 2)
    inputs = fp8_cases.inputs(op, *sizes)
    before, _ = fp8_cases.run(op, *inputs)
    group = sizes[3] // sizes[4]
    descale = inputs[which].clone()
    descale[1, 1] *= 1.5
    after, _ = fp8_cases.run(op, *changed(inputs, which, descale))
    heads = [1] if which == -3 and scale == "block" else list(range(group, 2 * group))
    differs = (after != before).any(-1)  # [sequence, query, head]
    assert differs[1][:, heads].all()
    differs[1][:, heads] = False
    assert not differs.any()


def test_the_descale_of_a_block_is_that_of_its_rows_alone(fp8_cases: Fp8Cases) -> None:
    op = fp8_cases.op(mask="none", fp8={"scale": "block"})
    inputs = fp8_cases.inputs(op, 2, 500, 700, 4, 2)
    before = fp8_cases.assert_fp8(op, *inputs)
    descale = inputs[-3].clone()
    descale[0, 2, 3] *= 1.5
    after = fp8_cases.assert_fp8(op, *changed(inputs, -3, descale))
    differs = (after != before).any(-1)
    assert differs[0, 384:, 2].all()
    differs[0, 384:, 2] = False
    assert not differs.any()
    for which in (-2, -1):
        descale = inputs[which].clone()
        descale[:, :, ::2] *= 3.0
        fp8_cases.assert_fp8(op, *changed(inputs, which, descale))


@pytest.mark.emulated
def test_one_for_all(fp8_cases: Fp8Cases) -> None:
    op = fp8_cases.op()
    inputs = fp8_cases.inputs(op, 2, 70, 90, 4, 2)
    ones = [torch.tensor([value], device=fp8_cases.device) for value in (0.01, 0.02, 0.005)]
    alike = [one.expand(2, 2) for one in ones]
    out = fp8_cases.assert_fp8(op, *inputs[:-3], *ones)
    assert torch.equal(op(*inputs[:-3], *alike), out)
    assert torch.equal(op(*inputs[:-3], *(one.contiguous() for one in alike)), out)


WRONG: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "left out": (
        lambda x: None,
        r"is missing; .* allowed: a torch\.Tensor, torch\.float32, \(batch, heads_kv\)",
    ),
    "bf16": (Tensor.bfloat16, r"is torch\.bfloat16; allowed: torch\.float32"),
    "on the CPU": (Tensor.cpu, r"is on cpu; allowed: cuda:0, as q"),
    "query heads": (
        lambda x: x.repeat(1, 4),
        r"has shape \(2, 8\); allowed: \(2, 2\), that is \(batch, heads_kv\)",
    ),
}


@pytest.mark.parametrize("which", [-3, -2, -1])
@pytest.mark.parametrize("wrong", WRONG)
def test_descales_that_are_wrong(fp8_cases: Fp8Cases, wrong: str, which: int) -> None:
    op = fp8_cases.op()
    inputs = fp8_cases.inputs(op, 2, 512, 512, 8, 2)
    before = op(*inputs)
    change, message = WRONG[wrong]
    for _ in range(2):
        with pytest.raises(ArgumentError, match=f"^{NAMES[which + 3]}: {message}"):
            op(*changed(inputs, which, change(inputs[which])))
    assert torch.equal(op(*inputs), before)


@pytest.mark.parametrize("scale", ["head", "block"])
@pytest.mark.parametrize("which", [-3, -2, -1])
def test_nan_in_a_descale_is_nan_in_its_heads_alone(fp8_cases: Fp8Cases, scale: str, which: int) -> None:
    op = fp8_cases.op(mask="none", fp8={"scale": scale})
    inputs = fp8_cases.inputs(op, 2, 512, 512, 8, 2)
    descale = inputs[which].clone()
    descale[1, 1] = torch.nan
    out = op(*changed(inputs, which, descale))
    heads = slice(1, 2) if which == -3 and scale == "block" else slice(4, 8)
    assert out[1, :, heads].isnan().all()
    out[1, :, heads] = 0
    assert out.isfinite().all()


@pytest.mark.gpu
@pytest.mark.parametrize("spec", ["h200_fa3", "h200_fa2"])
def test_descales_of_what_was_never_quantised(spec: str) -> None:
    op = fagen.load(SPECS / f"{spec}.yaml")
    q, k, v = (torch.randn(2, 128, 4, 128, device="cuda", dtype=torch.bfloat16) for _ in "qkv")
    before = op(q, k, v)
    half, two = (torch.tensor([x], device="cuda") for x in (0.5, 2.0))
    with pytest.raises(ArgumentError, match=r"^k_descale: is given, but k was never quantised"):
        op(q, k, v, k_descale=half, v_descale=two)
    assert torch.equal(op(q, k, v), before)
