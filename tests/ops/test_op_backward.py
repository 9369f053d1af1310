"""Gradients of an op, with the CPU in the GPU's place: what autograd, torch.compile and opcheck see."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

import fagen
from fagen.errors import ArgumentError, PlanError
from fagen.ops import reference_gradients
from fagen.ops.op import AttentionOp

pytestmark = pytest.mark.usefixtures("on_cpu")

Spec = Callable[..., dict[str, Any]]


def normal(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).bfloat16()


def qkv(batch: int = 2, seqlen_q: int = 33, seqlen_k: int = 40, heads_q: int = 6, heads_kv: int = 2):
    """Leaves that require grad."""
    sizes = ((seqlen_q, heads_q), (seqlen_k, heads_kv), (seqlen_k, heads_kv))
    return tuple(normal(batch, *size, 64, seed=i).requires_grad_() for i, size in enumerate(sizes))


def packed(rest: int = 0) -> tuple[Any, ...]:
    """What a packed op takes, with `rest` rows of no sequence."""
    lengths_q, lengths_k = (5, 0, 9, 1), (7, 3, 0, 20)
    offsets = [torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (lengths_q, lengths_k)]
    q, k, v = (
        normal(sum(lengths) + rest, heads, 64, seed=i).requires_grad_()
        for i, (lengths, heads) in enumerate(((lengths_q, 6), (lengths_k, 2), (lengths_k, 2)))
    )
    return q, k, v, *offsets, max(lengths_q), max(lengths_k)


def expected(
    op: AttentionOp, inputs: tuple[Any, ...], dout: Tensor, dlse: Tensor | None = None, **options: Any
) -> tuple[Tensor, ...]:
    tensors = [x.detach() for x in inputs if isinstance(x, Tensor)]
    exact = reference_gradients.gradients(op.spec.problem, *tensors, dout=dout, dlse=dlse, **options)
    return tuple(x.bfloat16() for x in exact)


def assert_same(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)


@pytest.fixture
def op(problem_spec: Spec) -> AttentionOp:
    return fagen.load(problem_spec("backward_causal", mask="causal"))


@pytest.fixture
def packed_op(problem_spec: Spec) -> AttentionOp:
    return fagen.load(problem_spec("backward_packed", layout="thd", mask="causal"))


class TestGradients:
    @pytest.mark.parametrize("layout", ["bshd", "bhsd"])
    def test_of_out(self, problem_spec: Spec, layout: str) -> None:
        op = fagen.load(problem_spec(f"backward_{layout}", layout=layout, mask="causal"))
        inputs = qkv()
        if layout == "bhsd":
            inputs = tuple(x.detach().transpose(1, 2).contiguous().requires_grad_() for x in inputs)
        out = op(*inputs, scale=0.5)
        dout = normal(*out.shape, seed=3)
        found = torch.autograd.grad(out, inputs, dout)
        assert_same(found, expected(op, inputs, dout, scale=0.5))
        for gradient, x in zip(found, inputs, strict=True):
            assert gradient.is_contiguous() and gradient.dtype == x.dtype

    def test_of_lse(self, op: AttentionOp) -> None:
        inputs = qkv()
        out, lse = op(*inputs, return_lse=True)
        dout, dlse = normal(*out.shape), normal(*lse.shape).float()
        both = torch.autograd.grad((out, lse), inputs, (dout, dlse), retain_graph=True)
        assert_same(both, expected(op, inputs, dout, dlse))
        dq, dk, dv = torch.autograd.grad(lse, inputs, dlse)
        assert_same((dq, dk, dv), expected(op, inputs, torch.zeros_like(out), dlse))
        assert torch.all(dv == 0)

    @pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)], ids=str)
    def test_of_inputs_that_ask_only(self, op: AttentionOp, which: tuple[int, ...]) -> None:
        inputs = tuple(x.requires_grad_(i in which) for i, x in enumerate(qkv()))
        all_three = qkv()
        op(*inputs).sum().backward()
        op(*all_three).sum().backward()
        for i, (some, every) in enumerate(zip(inputs, all_three, strict=True)):
            if i in which:
                assert_same([some.grad], [every.grad])
            else:
                assert some.grad is None

    def test_arrive_in_a_fused_tensor(self, op: AttentionOp) -> None:
        fused = normal(2, 20, 10, 64).requires_grad_()
        views = fused[:, :, :8], fused[:, :, 8:9], fused[:, :, 9:]
        apart = tuple(x.detach().contiguous().requires_grad_() for x in views)
        op(*views).sum().backward()
        op(*apart).sum().backward()
        gradients: Any = [x.grad for x in apart]
        assert_same([fused.grad], [torch.cat(gradients, dim=2)])

    @pytest.mark.parametrize("sizes", [(2, 0, 5, 2, 2), (2, 5, 0, 2, 2), (2, 0, 0, 2, 2), (0, 5, 5, 2, 2)])
    def test_are_zero_without_queries_or_keys(self, on_cpu: Any, op: AttentionOp, sizes: tuple) -> None:
        inputs = qkv(*sizes)
        out, lse = op(*inputs, return_lse=True)
        before = on_cpu.launches
        found = torch.autograd.grad(out.sum() + lse.sum(), inputs)
        for gradient, x in zip(found, inputs, strict=True):
            assert gradient.shape == x.shape and torch.all(gradient == 0)
        assert on_cpu.launches == before

    def test_run_every_kernel_once(self, on_cpu: Any, op: AttentionOp) -> None:
        out = op(*qkv())
        before = on_cpu.launches
        out.sum().backward()
        assert on_cpu.launches == before + 3

    def test_of_packed_sequences(self, packed_op: AttentionOp) -> None:
        inputs = packed(rest=3)
        out, lse = packed_op(*inputs, return_lse=True)
        dout, dlse = normal(*out.shape), normal(*lse.shape).float()
        found = torch.autograd.grad((out, lse), inputs[:3], (dout, dlse))
        assert_same(found, expected(packed_op, inputs[:5], dout, dlse))
        assert all(torch.all(gradient[-3:] == 0) for gradient in found)

    def test_of_packed_sequences_without_any_queries(self, on_cpu: Any, packed_op: AttentionOp) -> None:
        q, k, v, cu_q, cu_k, _, longest = packed(rest=3)
        out = packed_op(q, k, v, torch.zeros_like(cu_q), cu_k, 0, longest)
        found = torch.autograd.grad(out.sum(), (q, k, v))
        assert all(torch.all(gradient == 0) for gradient in found) and on_cpu.launches == 0


DOUT: dict[str, Callable[[Tensor], Tensor]] = {
    "expanded": lambda x: torch.ones((), dtype=x.dtype).expand(x.shape),
    "one row for all heads": lambda x: x[:, :, :1].expand(x.shape),
    "transposed": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "last dimension transposed": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "every second column": lambda x: x.repeat_interleave(2, dim=-1)[..., ::2],
    "a slice": lambda x: torch.cat([x, x], dim=2)[:, :, : x.shape[2]],
    "rows off 16 bytes": lambda x: torch.cat([x, x[..., :2]], dim=-1)[..., : x.shape[-1]],
    "start off 16 bytes": lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape),
}


@pytest.mark.parametrize("dout", DOUT.values(), ids=DOUT)
def test_a_gradient_of_out_may_have_any_strides(op: AttentionOp, dout: Callable[[Tensor], Tensor]) -> None:
    inputs = qkv()
    out, lse = op(*inputs, return_lse=True)
    given = dout(normal(*out.shape, seed=3))
    dlse = torch.ones(()).expand(lse.shape)
    found = torch.autograd.grad((out, lse), inputs, (given, dlse), retain_graph=True)
    wanted = torch.autograd.grad((out, lse), inputs, (given.contiguous().clone(), dlse.contiguous()))
    assert_same(found, wanted)


class TestMemory:
    def test_keeps_inputs_out_and_lse(self, op: AttentionOp) -> None:
        inputs, kept = qkv(), []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
            out, lse = op(*inputs, return_lse=True)
        assert [x.data_ptr() for x in kept] == [x.data_ptr() for x in (*inputs, out, lse)]

    def test_keeps_offsets_too(self, packed_op: AttentionOp) -> None:
        inputs, kept = packed(), []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
            packed_op(*inputs)
        assert len(kept) == 7 and kept[-1].data_ptr() == inputs[4].data_ptr()

    def test_keeps_the_row_statistics_of_v1(self, problem_spec: Spec) -> None:
        op = fagen.load(problem_spec("backward_v1", "v1"))
        inputs, kept = qkv(), []
        out, _, row_stats = torch.ops.fagen.backward_v1(*inputs)
        assert row_stats.shape == (2, 2, 6, 33) and row_stats.dtype == torch.float32
        assert not row_stats.requires_grad
        with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
            again = op(*inputs)
        assert len(kept) == 6 and torch.equal(kept[-1][0], row_stats[0])
        found = torch.autograd.grad(again.sum(), inputs)
        assert_same(found, expected(op, inputs, torch.ones_like(out)))
        with torch.no_grad():
            assert torch.equal(op(*inputs), out)

    def test_keeps_nothing_without_gradients(self, op: AttentionOp) -> None:
        def refuse(x: Tensor) -> Tensor:
            raise AssertionError("a tensor is kept")

        with torch.autograd.graph.saved_tensors_hooks(refuse, refuse), torch.no_grad():
            assert not op(*qkv()).requires_grad

    def test_an_input_that_changed_is_noticed(self, op: AttentionOp) -> None:
        q, k, v = qkv()
        out = op(q, k, v)
        with torch.no_grad():
            k.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()

    def test_workspaces_without_room_name_their_bytes(
        self, op: AttentionOp, problem_spec: Spec, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        v1 = fagen.load(problem_spec("backward_v1", "v1"))
        new_empty = Tensor.new_empty

        def full(like: Tensor, sizes: Any, **options: Any) -> Tensor:
            if isinstance(sizes, int):  # a workspace
                raise torch.OutOfMemoryError("no more")
            return new_empty(like, sizes, **options)

        inputs = qkv()
        out = op(*inputs)
        monkeypatch.setattr(Tensor, "new_empty", full)
        with pytest.raises(torch.OutOfMemoryError, match=r"backward_causal: .* wants [\d,]+ bytes .*dq_sum"):
            out.sum().backward()
        with pytest.raises(torch.OutOfMemoryError, match=r"backward_v1: .* wants [\d,]+ bytes .*o_sum"):
            v1(*inputs)
        monkeypatch.undo()


@pytest.fixture
def determinism() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("determinism")
class TestDeterminism:
    def test_is_refused_without_the_key(self, op: AttentionOp) -> None:
        out = op(*qkv())
        torch.use_deterministic_algorithms(True)
        with pytest.raises(ArgumentError, match=r"^problem\.deterministic: is false"):
            out.sum().backward(retain_graph=True)
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match=r"^problem\.deterministic: is false"):
            out.sum().backward()

    def test_is_honoured_with_the_key(self, problem_spec: Spec) -> None:
        op, inputs = fagen.load(problem_spec("backward_deterministic", deterministic=True)), qkv()
        torch.use_deterministic_algorithms(True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            out = op(*inputs)
            found = torch.autograd.grad(out, inputs, torch.ones_like(out))
        assert_same(found, expected(op, inputs, torch.ones_like(out)))


def test_a_second_derivative_is_refused(op: AttentionOp) -> None:
    inputs = qkv()
    found = torch.autograd.grad(op(*inputs).sum(), inputs, create_graph=True)
    for gradient in found:
        with pytest.raises(ArgumentError, match="were differentiated; allowed: first derivatives"):
            gradient.sum().backward(retain_graph=True)


def test_no_backward_without_its_pass(problem_spec: Spec) -> None:
    op = fagen.load(problem_spec("backward_none", passes=("forward",)))
    assert not hasattr(torch.ops.fagen, "backward_none_backward")
    for which in range(3):
        inputs = tuple(x.requires_grad_(i == which) for i, x in enumerate(qkv()))
        for result in op(*inputs, return_lse=True):
            with pytest.raises(ArgumentError, match=r"require grad, but backward_none has no backward"):
                result.sum().backward(retain_graph=True)
        with torch.no_grad():
            assert not op(*inputs).requires_grad


def test_a_backward_that_does_not_fit_is_refused_at_once(problem_spec: Spec) -> None:
    spec = problem_spec("backward_too_large", head_dim=256)
    spec |= {"schedule": {"backward": {"tile": {"q": 256, "kv": 256}}}}
    with pytest.raises(PlanError, match="shared memory"):
        fagen.load(spec)


def test_the_name_of_a_backward_is_taken(problem_spec: Spec) -> None:
    fagen.load(problem_spec("names"))
    with pytest.raises(ArgumentError, match=r"torch\.ops\.fagen\.names_backward is already an op"):
        fagen.load(problem_spec("names_backward"))
    fagen.load(problem_spec("other_backward"))
    with pytest.raises(ArgumentError, match=r"torch\.ops\.fagen\.other_backward is already an op"):
        fagen.load(problem_spec("other"))


def given(op: AttentionOp) -> dict[str, Any]:
    """What `fagen::<name>_backward` takes."""
    q, k, v = (x.detach() for x in qkv())
    out, lse = op(q, k, v, return_lse=True)
    return {"dout": normal(*out.shape), "dlse": None, "q": q, "k": k, "v": v, "out": out, "lse": lse}


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("dout", lambda x: x.float(), r"^dout: is torch\.float32; allowed: torch\.bfloat16"),
        ("dout", lambda x: x[:, 1:], r"^dout: has shape \(2, 32, 6, 64\); allowed: \(2, 33, 6, 64\)"),
        ("dout", lambda x: x.to_sparse(), r"^dout: has layout torch\.sparse_coo"),
        ("dlse", lambda _: torch.zeros(2, 6, 33), ""),
        ("dlse", lambda _: torch.zeros(2, 33, 6), r"^dlse: has shape \(2, 33, 6\); allowed: \(2, 6, 33\)"),
        ("out", lambda x: x.half(), r"^out: is torch\.float16; allowed: torch\.bfloat16"),
        ("lse", lambda x: x.double(), r"^lse: is torch\.float64; allowed: torch\.float32"),
        ("lse", lambda x: x.to("meta"), r"^lse: is on meta; allowed: cpu, as q"),
        ("v", lambda x: x[:, :, :1], r"^v: heads is 1; allowed: 2, as in k"),
        ("q", lambda x: x.repeat_interleave(2, dim=-1)[..., ::2], r"^q: stride of its last dimension is 2"),
        ("scale", lambda _: -1.0, r"^scale: is -1\.0"),
    ],
)
def test_wrong_arguments_of_the_torch_op(op: AttentionOp, name: str, wrong: Any, message: str) -> None:
    arguments = given(op)
    good = torch.ops.fagen.backward_causal_backward(**arguments)
    arguments[name] = wrong(arguments.get(name))
    if message:
        with pytest.raises(ArgumentError, match=message):
            torch.ops.fagen.backward_causal_backward(**arguments)
    else:
        assert_same(torch.ops.fagen.backward_causal_backward(**arguments), good)


class TestTorch:
    def test_opcheck(self, op: AttentionOp) -> None:
        torch.library.opcheck(torch.ops.fagen.backward_causal.default, qkv(), {"scale": 0.5})
        for dlse in (None, torch.ones(2, 6, 33)):
            arguments = given(op) | {"dlse": dlse, "scale": 0.5}
            torch.library.opcheck(torch.ops.fagen.backward_causal_backward.default, (), arguments)

    def test_opcheck_of_packed_sequences(self, packed_op: AttentionOp) -> None:
        inputs = packed(rest=2)
        torch.library.opcheck(torch.ops.fagen.backward_packed.default, inputs, {"scale": 0.5})
        q, k, v, *packing = (x.detach() if isinstance(x, Tensor) else x for x in inputs)
        out, lse = packed_op(q, k, v, *packing, return_lse=True)
        arguments = (torch.ones_like(out), None, q, k, v, out, lse, *packing)
        torch.library.opcheck(torch.ops.fagen.backward_packed_backward.default, arguments)

    @pytest.mark.parametrize("dynamic", [False, True])
    def test_compiles_without_a_graph_break(self, op: AttentionOp, dynamic: bool) -> None:
        def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out, lse = op(q * 2, k, v, return_lse=True)
            return out.sum() + lse.sum() + op(out, k, v).sum()

        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        for seqlen in (17, 40):
            inputs = qkv(seqlen_q=seqlen, seqlen_k=seqlen)
            found, wanted = (torch.autograd.grad(own(*inputs), inputs) for own in (compiled, model))
            assert_same(found, wanted)

    def test_one_compilation_serves_every_length(self, op: AttentionOp, packed_op: AttentionOp) -> None:
        for own, inputs in ((op, lambda n: qkv(2 + n % 3, n, n + 5)), (packed_op, longer)):
            torch._dynamo.reset()
            counter = CompileCounterWithBackend("aot_eager")
            compiled = torch.compile(own, fullgraph=True, dynamic=True, backend=counter)
            graphs = []
            for n in range(4, 10):
                q, *rest = inputs(n)
                found = torch.autograd.grad(compiled(q + 1, *rest).sum(), (q, *rest[:2]))
                assert_same(found, torch.autograd.grad(own(q + 1, *rest).sum(), (q, *rest[:2])))
                graphs.append(counter.frame_count)
            assert graphs[-1] == graphs[0], "one for every length"

    def test_checkpoints(self, op: AttentionOp) -> None:
        inputs = qkv()
        out = checkpoint(op, *inputs, use_reentrant=False)
        assert isinstance(out, Tensor)
        assert_same(torch.autograd.grad(out.sum(), inputs), torch.autograd.grad(op(*inputs).sum(), inputs))


def longer(first: int) -> tuple[Any, ...]:
    """What a packed op takes, of sequences that depend on `first`."""
    offsets = [torch.tensor([0, first, 3, length]).cumsum(0).int() for length in (2, 7)]
    tokens = [int(x[-1]) for x in offsets]
    q, k, v = (
        normal(n, heads, 64, seed=first).requires_grad_()
        for n, heads in ((tokens[0], 6), (tokens[1], 2), (tokens[1], 2))
    )
    return q, k, v, *offsets, first, max(first, 7)
