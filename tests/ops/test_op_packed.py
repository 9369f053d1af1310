"""Packed sequences: what a call does, with the CPU in the GPU's place, and every wrong argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import fagen
from fagen.errors import ArgumentError
from fagen.ops import reference
from fagen.ops.op import AttentionOp

Spec = Callable[..., dict[str, Any]]

LENGTHS = ((5, 0, 9, 1), (7, 3, 0, 20))  # of q and k


def offsets(lengths: tuple[int, ...]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).int()


def arguments(
    lengths_q: tuple[int, ...] = LENGTHS[0],
    lengths_k: tuple[int, ...] = LENGTHS[1],
    heads: tuple[int, int] = (6, 2),
    rest: int = 0,
) -> tuple[Any, ...]:
    """What an op takes, with `rest` rows after the last sequence."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(sum(lengths) + rest, n, 64, generator=generator).bfloat16()
        for lengths, n in ((lengths_q, heads[0]), (lengths_k, heads[1]), (lengths_k, heads[1]))
    )
    return q, k, v, offsets(lengths_q), offsets(lengths_k), max(lengths_q), max(lengths_k)


@pytest.fixture
def op(problem_spec: Spec) -> AttentionOp:
    return fagen.load(problem_spec("packed_causal", "v3", layout="thd", mask="causal"))


def assert_right(op: AttentionOp, inputs: tuple[Any, ...], **options: Any) -> None:
    out, lse = op(*inputs, return_lse=True, **options)
    exact, exact_lse = reference.attention(op.spec.problem, *inputs[:5], **options)
    assert out.is_contiguous() and out.dtype == torch.bfloat16
    torch.testing.assert_close(out, exact.to(out.dtype))
    torch.testing.assert_close(lse, exact_lse.float())
    assert torch.equal(op(*inputs, **options), out)


@pytest.mark.usefixtures("on_cpu")
class TestCall:
    def test_result_and_lse(self, op: AttentionOp) -> None:
        assert_right(op, arguments())
        assert_right(op, arguments(), scale=0.5)
        assert_right(op, arguments(rest=3))

    def test_strides_of_views(self, op: AttentionOp) -> None:
        fused = torch.randn(20, 10, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
        cu = offsets((15, 5))
        assert_right(op, (fused[:, :8], fused[:, 8:9], fused[:, 9:], cu, cu, 15, 15))

    def test_arguments_by_name(self, op: AttentionOp) -> None:
        q, k, v, cu_q, cu_k, max_q, max_k = arguments()
        by_name = op(q, k, v, max_seqlen_k=max_k, max_seqlen_q=max_q, cu_seqlens_k=cu_k, cu_seqlens_q=cu_q)
        assert torch.equal(by_name, op(*arguments()))

    def test_other_offsets_in_the_same_tensors(self, on_cpu: Any, op: AttentionOp) -> None:
        inputs = arguments()
        assert_right(op, inputs)
        remembered = len(op.forward._calls)
        inputs[3].copy_(offsets((0, 5, 1, 9)))
        assert_right(op, inputs)
        assert on_cpu.launches == 4 and len(op.forward._calls) == remembered

    @pytest.mark.parametrize(
        ("lengths_q", "lengths_k"),
        [((0, 0), (3, 4)), ((3, 4), (0, 0)), ((0,), (0,))],
    )
    def test_nothing_to_compute_is_not_launched(
        self, on_cpu: Any, op: AttentionOp, lengths_q: tuple, lengths_k: tuple
    ) -> None:
        out, lse = op(*arguments(lengths_q, lengths_k), return_lse=True)
        assert out.shape == (sum(lengths_q), 6, 64) and lse.shape == (6, sum(lengths_q))
        assert torch.all(out == 0) and torch.all(lse == -math.inf)
        assert on_cpu.launches == 0

    def test_rows_beside_empty_sequences(self, on_cpu: Any, op: AttentionOp) -> None:
        """max_seqlen 0 says that there are no queries at all; what rows there are belong to no sequence."""
        out, lse = op(*arguments((0, 0), (3, 4), rest=5), return_lse=True)
        assert torch.all(out == 0) and torch.all(lse == -math.inf) and out.shape[0] == 5
        assert on_cpu.launches == 0

    def test_torch_op_is_the_same_op(self, op: AttentionOp) -> None:
        found = torch.ops.fagen.packed_causal(*arguments(), 0.25)
        for one, other in zip(found, op(*arguments(), scale=0.25, return_lse=True), strict=True):
            assert torch.equal(one, other)
        with pytest.raises(ArgumentError, match="cu_seqlens_k: has 2 offsets; allowed: 5"):
            q, k, v, cu_q, cu_k, *lengths = arguments()
            torch.ops.fagen.packed_causal(q, k, v, cu_q, cu_k[:2], *lengths)

    def test_opcheck(self, op: AttentionOp) -> None:
        torch.library.opcheck(torch.ops.fagen.packed_causal.default, arguments(), {"scale": 0.5})

    def test_vmap(self, op: AttentionOp) -> None:
        q, *rest = arguments()
        assert torch.equal(torch.vmap(lambda x: op(x, *rest))(q.unsqueeze(0))[0], op(q, *rest))

    def test_one_compilation_serves_every_length(self, op: AttentionOp) -> None:
        compilations = 0

        def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
            nonlocal compilations
            compilations += 1
            return graph.forward

        def model(*inputs: Any) -> tuple[Tensor, Tensor]:
            out, lse = op(inputs[0] + 1, *inputs[1:], scale=0.5, return_lse=True)
            return out * 2, lse

        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
        for first in range(4, 12):
            inputs = arguments((first, 3, 2), (first + 5, 4, 7))
            for found, expected in zip(compiled(*inputs), model(*inputs), strict=True):
                assert torch.equal(found, expected)
        assert compilations == 1

    def test_compiles_with_the_fake_kernel(self, op: AttentionOp) -> None:
        torch._dynamo.reset()
        compiled = torch.compile(op, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(*arguments()), op(*arguments()))
        q, k, v, cu_q, *rest = arguments()
        with pytest.raises(Exception, match=r"cu_seqlens_q: is torch\.int64"):
            compiled(q, k, v, cu_q.long(), *rest)


def test_fake_tensors_have_the_shapes_of_the_result(op: AttentionOp) -> None:
    with FakeTensorMode():
        q, kv = (torch.empty(n, h, 64, dtype=torch.bfloat16, device="cuda") for n, h in ((50, 6), (70, 2)))
        cu = torch.empty(4, dtype=torch.int32, device="cuda")
        out, lse = op(q, kv, kv, cu, cu, 20, 30, return_lse=True)
        assert (out.shape, out.dtype, out.device) == ((50, 6, 64), torch.bfloat16, q.device)
        assert (lse.shape, lse.dtype, lse.device) == ((6, 50), torch.float32, q.device)
        with pytest.raises(ArgumentError, match=r"^cu_seqlens_q: has shape \(4, 1\)"):
            op(q, kv, kv, cu.unsqueeze(1), cu, 20, 30)


META = torch.empty(5, dtype=torch.int32, device="meta")


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    ("field", "wrong", "message"),
    [
        (3, lambda x: x.long(), r"^cu_seqlens_q: is torch\.int64; allowed: torch\.int32"),
        (4, lambda x: x.float(), r"^cu_seqlens_k: is torch\.float32; allowed: torch\.int32"),
        (4, lambda x: META, r"^cu_seqlens_k: is on meta; allowed: cpu, as q"),
        (3, lambda x: x.unsqueeze(0), r"^cu_seqlens_q: has shape \(1, 5\); allowed: 1 dimension"),
        (3, lambda x: x[:1], r"^cu_seqlens_q: has shape \(1\); .* one or more sequences, and the end"),
        (3, lambda x: x[2], r"^cu_seqlens_q: has shape \(\); allowed: 1 dimension"),
        (4, lambda x: x.repeat_interleave(2)[::2], r"^cu_seqlens_k: has stride 2; allowed: contiguous"),
        (4, lambda x: x[:-1], r"^cu_seqlens_k: has 4 offsets; allowed: 5, as cu_seqlens_q"),
        (3, lambda x: x.tolist(), r"^cu_seqlens_q: is a list; allowed: a torch\.Tensor"),
        (4, lambda x: None, r"^cu_seqlens_k: is a NoneType; allowed: a torch\.Tensor"),
        (5, torch.tensor, r"^max_seqlen_q: is a Tensor; allowed: a Python int \(max_seqlen_q\.item\(\)"),
        (6, lambda x: x + 0.5, r"^max_seqlen_k: is a float; allowed: a Python int$"),
        (6, lambda x: None, r"^max_seqlen_k: is a NoneType; allowed: a Python int$"),
        (5, lambda x: -1, r"^max_seqlen_q: is -1; allowed: the length of the longest sequence"),
        (5, lambda x: 2**31 - 2, r"seqlen_q is 2,147,483,646; allowed: up to"),
        (0, lambda x: x.unsqueeze(0), r"^q: has shape \(1, 15, 6, 64\); allowed: 3 dimensions, \(tokens, "),
        (2, lambda x: x[1:], r"^v: tokens is 29; allowed: 30, as in k"),
        (2, lambda x: x[:, 1:], r"^v: heads is 1; allowed: 2, as in k"),
        (0, lambda x: x[:, :5], r"^k: heads is 2; allowed: a divisor of q's 5 heads"),
        (1, lambda x: x.half(), r"^dtype: q is torch\.bfloat16, k is torch\.float16"),
    ],
)
def test_wrong_arguments(on_cpu: Any, op: AttentionOp, field: int, wrong: Any, message: str) -> None:
    inputs = list(arguments())
    inputs[field] = wrong(inputs[field])
    with pytest.raises(ArgumentError, match=message):
        op(*inputs)
    assert on_cpu.launches == 0


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("field", [3, 4, 5, 6])
def test_an_op_of_another_layout_takes_no_offsets(problem_spec: Spec, field: int) -> None:
    op = fagen.load(problem_spec("not_packed"))
    inputs: list[Any] = [torch.zeros(1, 4, 2, 64, dtype=torch.bfloat16)] * 3 + [None] * 4
    op(*inputs)
    inputs[field] = arguments()[field]
    names = ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
    with pytest.raises(ArgumentError, match=rf"^{names[field - 3]}: is given, .*layout: bshd"):
        op(*inputs)


@pytest.mark.usefixtures("on_cpu")
class TestValues:
    """The environment variable FAGEN_CHECK_METADATA has the offsets' values checked."""

    @pytest.fixture(autouse=True)
    def checked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FAGEN_CHECK_METADATA", "1")

    def test_what_is_right_passes(self, op: AttentionOp) -> None:
        assert_right(op, arguments(rest=1))

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            (3, [1, 5, 5, 14, 15], r"^cu_seqlens_q: starts with 1; allowed: 0"),
            (4, [0, 7, 6, 10, 30], r"^cu_seqlens_k: falls from 7 to 6 at sequence 1"),
            (3, [0, 5, 5, 14, 16], r"^cu_seqlens_q: ends with 16; allowed: up to 15, q's tokens"),
            (5, 8, r"^max_seqlen_q: is 8; allowed: 9 or more, the length of sequence 2"),
            (6, 19, r"^max_seqlen_k: is 19; allowed: 20 or more, the length of sequence 3"),
        ],
    )
    def test_what_is_wrong_is_named(
        self, on_cpu: Any, op: AttentionOp, field: int, value: Any, message: str
    ) -> None:
        inputs = list(arguments())
        op(*inputs)
        inputs[field] = torch.tensor(value, dtype=torch.int32) if isinstance(value, list) else value
        with pytest.raises(ArgumentError, match=message):
            op(*inputs)
        assert on_cpu.launches == 1
