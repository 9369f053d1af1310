"""Gradients of views, in any layout, for the inputs that ask; gradients of out with strides of every kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from gpu_cases import Cases, assert_same_bits
from torch import Tensor


@pytest.mark.emulated("v1", "v2", mask=["causal"])
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_slices_of_one_fused_tensor(cases: Cases, mask: str) -> None:
    """The gradient arrives complete in the fused tensor."""
    op = cases.op(head_dim=64, mask=mask)
    length, heads = (70, 3) if cases.small else (2048, 16)
    sizes = (1, length, heads + 2, 64)
    fused = torch.randn(sizes, dtype=torch.bfloat16, device=cases.device).requires_grad_()

    def views(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x[:, :, :heads], x[:, :, heads : heads + 1], x[:, :, heads + 1 :]

    out = op(*views(fused))
    dout = cases.dout(op, *views(fused.detach()))
    out.backward(dout)
    assert fused.grad is not None
    found = views(fused.grad)
    inputs = views(fused.detach())
    cases.assert_gradients(op, *inputs, dout=dout)
    expected = cases.gradients(op, *(x.contiguous() for x in inputs), dout=dout)[1]
    assert_same_bits(*(tuple(x.contiguous() for x in own[1:]) for own in (found, expected)))
    torch.testing.assert_close(found[0], expected.dq, rtol=2e-2, atol=2e-2)


def transposed(x: Tensor) -> Tensor:
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def every_other(x: Tensor) -> Tensor:
    wide = x.new_full((*x.shape[:-1], 2 * x.shape[-1]), torch.nan)
    wide[..., ::2] = x
    return wide[..., ::2]


def slice_of_a_larger_one(x: Tensor) -> Tensor:
    larger = x.new_full(tuple(n + 2 for n in x.shape), torch.nan)
    own = larger[tuple(slice(1, 1 + n) for n in x.shape)]
    own.copy_(x)
    return own


DOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "of a sum": lambda x: x.new_ones(()).expand_as(x),
    "transposed": transposed,
    "every other element": every_other,
    "a slice": slice_of_a_larger_one,
}


@pytest.mark.emulated("v1", "v2", made=["of a sum", "a slice"])
@pytest.mark.parametrize("made", DOUTS)
def test_strides_of_the_gradient_of_out(cases: Cases, made: str) -> None:
    op = cases.op(head_dim=64, deterministic=True)
    sizes = (1, 40, 70, 2) if cases.small else (2, 200, 300, 4)
    inputs = cases.inputs(op, *sizes)
    dout = DOUTS[made](cases.dout(op, *inputs))
    assert not dout.is_contiguous()
    found = cases.assert_gradients(op, *inputs, dout=dout)
    assert_same_bits(found, cases.gradients(op, *inputs, dout=dout.contiguous())[1])


@pytest.mark.emulated("v1", "v2")
def test_layouts_give_the_same_numbers(cases: Cases) -> None:
    bshd, bhsd = (cases.op(head_dim=64, layout=layout, deterministic=True) for layout in ("bshd", "bhsd"))
    inputs = cases.inputs(bshd, *((1, 40, 70, 2, 1) if cases.small else (2, 200, 300, 8, 2)))
    dout = cases.dout(bshd, *inputs)
    found = cases.gradients(bshd, *inputs, dout=dout)[1]
    swapped = tuple(x.transpose(1, 2).contiguous() for x in (*inputs, dout))
    other = cases.assert_gradients(bhsd, *swapped[:3], dout=swapped[3])
    assert_same_bits(found, tuple(x.transpose(1, 2).contiguous() for x in other))


@pytest.mark.parametrize("dims", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_axes_in_any_order(cases: Cases, dims: tuple[int, int, int]) -> None:
    op = cases.op(head_dim=64)
    inputs = cases.inputs(op, 3, 130, 130, 4)
    back = [dims.index(i) for i in range(3)]
    views = (x.permute(*dims, 3).contiguous().permute(*back, 3) for x in inputs)
    cases.assert_gradients(op, *views)


def test_broadcast_keys(cases: Cases) -> None:
    op = cases.op(head_dim=64)
    q, k, v = cases.inputs(op, 3, 130, 130, 4)
    cases.assert_gradients(op, q, *(x[:1, :, :1].expand_as(q) for x in (k, v)))


@pytest.mark.emulated("v1", "v2", asking=["q", "kv"])
@pytest.mark.parametrize("asking", ["q", "k", "v", "qk", "qv", "kv", "qkv"])
def test_only_some_inputs_ask(cases: Cases, asking: str) -> None:
    op = cases.op(head_dim=64, deterministic=True)
    inputs = cases.inputs(op, 1, 40, 70, 2)
    dout = cases.dout(op, *inputs)
    _, expected = cases.gradients(op, *inputs, dout=dout)
    given = dict(zip("qkv", (x.clone() for x in inputs), strict=True))
    for name in asking:
        given[name].requires_grad_()
    op(**given).backward(dout)
    for (name, x), gradient in zip(given.items(), expected, strict=True):
        if name in asking:
            assert x.grad is not None and torch.equal(x.grad, gradient)
        else:
            assert x.grad is None


@pytest.mark.alone
def test_nothing_is_kept_without_gradients(cases: Cases) -> None:
    op = cases.op()
    inputs = cases.inputs(op, 2, 1024, 1024, 8)
    op(*inputs)  # builds, and makes what stays
    before = torch.cuda.memory_allocated()
    for x in inputs:
        x.requires_grad_()
    with torch.no_grad():
        out = op(*inputs)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before == out.numel() * out.element_size()
