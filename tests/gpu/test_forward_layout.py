"""Views, strides, alignment, layouts."""

from __future__ import annotations

import pytest
import torch
from gpu_cases import Cases

from fagen.errors import ArgumentError


@pytest.mark.emulated
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_slices_of_one_fused_tensor(cases: Cases, mask: str) -> None:
    op = cases.op(head_dim=64, mask=mask)
    fused = torch.randn((1, 70 if cases.small else 2048, 18, 64), dtype=torch.bfloat16, device=cases.device)
    views = fused[:, :, :16], fused[:, :, 16:17], fused[:, :, 17:]
    cases.assert_right(op, *views)
    assert torch.equal(op(*views), op(*(x.contiguous() for x in views)))


@pytest.mark.emulated
@pytest.mark.parametrize("dims", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_axes_in_any_order(cases: Cases, dims: tuple[int, int, int]) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.inputs(op, 3, 130, 130, 4)
    back = [dims.index(i) for i in range(3)]
    views = [x.permute(*dims, 3).contiguous().permute(*back, 3) for x in inputs]
    assert torch.equal(op(*views), op(*inputs))


@pytest.mark.emulated
def test_broadcast_keys(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    q, k, v = cases.inputs(op, 3, 130, 130, 4)
    k, v = (x[:1, :, :1].expand_as(q) for x in (k, v))
    assert torch.equal(op(q, k, v), op(q, k.contiguous(), v.contiguous()))


@pytest.mark.emulated
@pytest.mark.parametrize("which", [0, 1, 2])
def test_last_dimension_with_a_stride(cases: Cases, which: int) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.inputs(op, 2, 128, 128, 4)
    wide = torch.randn((2, 128, 4, 128), dtype=torch.bfloat16, device=cases.device)
    for view, stride in (
        (wide[..., ::2], 2),
        (inputs[which].transpose(2, 3).contiguous().transpose(2, 3), 4),
    ):
        wrong = [view if i == which else x for i, x in enumerate(inputs)]
        message = f"^{'qkv'[which]}: stride of its last dimension is {stride}; allowed: 1"
        with pytest.raises(ArgumentError, match=message):
            op(*wrong)
    cases.assert_right(op, *inputs)


@pytest.mark.emulated(which=[1])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("offset", [1, 3, 4])
def test_unaligned_views(cases: Cases, which: int, offset: int) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.inputs(op, 2, 128, 128, 4)
    memory = torch.randn(2 * 128 * 4 * 66 + 8, dtype=torch.bfloat16, device=cases.device)
    dense = memory[offset : offset + 2 * 128 * 4 * 64].view(2, 128, 4, 64)
    pitched = memory[: 2 * 128 * 4 * 66].view(2, 128, 4, 66)[..., :64]
    for view in (dense, pitched, memory[offset : offset + 2 * 128 * 4 * 66].view(2, 128, 4, 66)[..., :64]):
        wrong = [view if i == which else x for i, x in enumerate(inputs)]
        with pytest.raises(ArgumentError, match=rf"^{'qkv'[which]}: .*16-byte aligned"):
            op(*wrong)
    cases.assert_right(op, *inputs)


@pytest.mark.emulated
def test_views_at_aligned_offsets(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    memory = torch.randn((3, 2, 128, 4, 72), dtype=torch.bfloat16, device=cases.device)
    cases.assert_right(op, *memory[..., 8:].unbind())


@pytest.mark.emulated
def test_layouts_give_the_same_numbers(cases: Cases) -> None:
    bshd, bhsd = cases.op(head_dim=64), cases.op(head_dim=64, layout="bhsd")
    inputs = cases.inputs(bshd, 2, *((40, 70) if cases.small else (200, 300)), 8, 2)
    swapped = [x.transpose(1, 2).contiguous() for x in inputs]
    cases.assert_right(bhsd, *swapped)
    (out, lse), (out_swapped, lse_swapped) = cases.run(bshd, *inputs), cases.run(bhsd, *swapped)
    assert torch.equal(out, out_swapped.transpose(1, 2)) and torch.equal(lse, lse_swapped)


@pytest.mark.emulated
def test_heads_and_sequence_exchanged(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    q, k, v = cases.inputs(op, 2, 128, 128, 8)
    with pytest.raises(ArgumentError, match=r"^k: heads is 128; .*problem.layout: bshd"):
        op(q, k.transpose(1, 2).contiguous(), v.transpose(1, 2).contiguous())
