"""The plain reference of `fagen.quantize_fp8`: what its transform is, and what its results stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fagen.ops import reference_quantize as reference
from fagen.plan.quantize import HEAD_DIMS


@pytest.mark.parametrize("dim", HEAD_DIMS)
def test_the_matrix_is_a_hadamard_matrix(dim):
    matrix = reference.hadamard_matrix(dim)
    assert matrix.shape == (dim, dim) and (matrix.abs() == 1).all()
    assert torch.equal(matrix @ matrix.T, dim * torch.eye(dim, dtype=torch.float64))


def test_the_signs_are_the_bits_of_pi():
    # Its fraction in hexadecimal is 243F6A88 85A308D3 ...: each word's lowest bit is its first column.
    assert [int(s < 0) for s in reference.signs(64)[:8].tolist()] == [0, 0, 0, 1, 0, 0, 0, 1]  # 0x88
    assert [int(s < 0) for s in reference.signs(64)[32:40].tolist()] == [1, 1, 0, 0, 1, 0, 1, 1]  # 0xd3
    assert 100 <= sum(s < 0 for s in reference.signs(256).tolist()) <= 156


def test_the_transform_keeps_scores_and_spreads_an_outlier():
    q, k = (torch.randn(1, 1, 50, 128, generator=torch.Generator().manual_seed(i)) for i in range(2))
    q[..., 7] *= 100
    q_new, k_new = reference.transform(q), reference.transform(k)
    torch.testing.assert_close(q_new @ k_new.mT, q @ k.mT, rtol=1e-4, atol=1e-3)
    assert q_new.abs().max() < q.abs().max() / 5


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("scale", ["block", "head", "tensor"])
def test_results_times_descales_are_what_was_given(scale, layout):
    generator = torch.Generator().manual_seed(0)
    sizes = {"q": (2, 150, 4, 32), "k": (2, 130, 2, 32), "v": (2, 130, 2, 64)}
    given: dict[str, Any] = {
        name: torch.randn(batch, length, heads, dim, generator=generator).bfloat16()
        if layout == "bshd"
        else torch.randn(batch, heads, length, dim, generator=generator).bfloat16()
        for name, (batch, length, heads, dim) in sizes.items()
    }
    found = reference.quantize(**given, scale=scale, layout=layout)
    for name, x in given.items():
        descale = getattr(found, f"{name}_descale")
        back = reference.dequantize(getattr(found, name), descale, layout)
        # Half a step of 3 bits, and of numbers below 2^-6 half of 2^-9.
        allowed = x.float().abs() * 2**-4 + descale.max() * 2**-10
        assert ((back - x.float()).abs() <= allowed * 1.0001).all()
        if scale == "block":  # powers of two
            assert (descale.frexp().mantissa == 0.5).all()
            assert 224 < getattr(found, name).float().abs().amax() <= 448
        else:
            assert getattr(found, name).float().abs().amax() == 448
