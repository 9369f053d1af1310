"""What a call does, with the CPU in the GPU's place: checks, allocation, strides, scale, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import fagen
from fagen.errors import ArgumentError, FagenError, LaunchError, PlanError
from fagen.hw.arch import ARCHES
from fagen.ops import kernels, reference, remembered
from fagen.ops.op import AttentionOp

pytestmark = pytest.mark.usefixtures("on_cpu")

Spec = Callable[..., dict[str, Any]]


def tensor(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).bfloat16()


def qkv(batch: int = 2, seqlen_q: int = 33, seqlen_k: int = 40, heads_q: int = 6, heads_kv: int = 2):
    sizes = ((seqlen_q, heads_q), (seqlen_k, heads_kv), (seqlen_k, heads_kv))
    return tuple(tensor(batch, *size, 64, seed=i) for i, size in enumerate(sizes))


def assert_right(op: AttentionOp, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> None:
    out, lse = op(q, k, v, return_lse=True, **options)
    exact, exact_lse = reference.attention(op.spec.problem, q, k, v, **options)
    assert out.is_contiguous() and out.dtype == q.dtype
    torch.testing.assert_close(out, exact.to(out.dtype))
    torch.testing.assert_close(lse, exact_lse.float())
    assert torch.equal(op(q, k, v, **options), out)


@pytest.fixture
def op(problem_spec: Spec) -> AttentionOp:
    return fagen.load(problem_spec("call_causal", mask="causal"))


def test_result_and_lse(op: AttentionOp) -> None:
    assert_right(op, *qkv())
    assert_right(op, *qkv(), scale=0.5)
    assert_right(op, *qkv(seqlen_q=9, seqlen_k=5))


def test_strides_of_views(op: AttentionOp) -> None:
    fused = tensor(2, 20, 10, 64)
    assert_right(op, fused[:, :, :8], fused[:, :, 8:9], fused[:, :, 9:])
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in qkv())
    assert_right(op, q, k, v)


def test_bhsd_and_head_dim_v(problem_spec: Spec) -> None:
    op = fagen.load(problem_spec("call_bhsd", layout="bhsd", head_dim_v=16))
    q, k, v = (x.transpose(1, 2).contiguous() for x in qkv())
    out = op(q, k, v[..., :16])
    assert out.shape == (2, 6, 33, 16)
    assert_right(op, q, k, v[..., :16])


@pytest.mark.parametrize("sizes", [(0, 5, 5, 2, 2), (2, 0, 5, 2, 2), (2, 0, 0, 2, 2), (2, 5, 5, 0, 0)])
def test_nothing_to_compute_is_not_launched(on_cpu: Any, op: AttentionOp, sizes: tuple) -> None:
    out, lse = op(*qkv(*sizes), return_lse=True)
    batch, seqlen_q, _, heads_q, _ = sizes
    assert out.shape == (batch, seqlen_q, heads_q, 64) and lse.shape == (batch, heads_q, seqlen_q)
    assert on_cpu.launches == 0


def test_no_keys(op: AttentionOp) -> None:
    out, lse = op(*qkv(seqlen_k=0), return_lse=True)
    assert torch.equal(out, torch.zeros_like(out)) and torch.all(lse == -math.inf)


def test_v3_has_no_launch_without_keys(on_cpu: Any, problem_spec: Spec) -> None:
    op = fagen.load(problem_spec("call_v3_no_keys", "v3"))
    out, lse = op(*qkv(seqlen_k=0), return_lse=True)
    assert torch.equal(out, torch.zeros_like(out)) and torch.all(lse == -math.inf)
    assert on_cpu.launches == 0
    assert_right(op, *qkv())


@pytest.mark.parametrize("window", [(3, 1), (0, 0), (None, 2)], ids=str)
def test_windows(problem_spec: Spec, window: tuple[int | None, int]) -> None:
    op = fagen.load(problem_spec(f"call_window_{window[1]}", mask={"window": window}))
    assert_right(op, *qkv())


def test_a_warm_call_checks_again_only_what_changed(on_cpu: Any, op: AttentionOp) -> None:
    q, k, v = qkv()
    op(q, k, v)
    unaligned = torch.empty(q.numel() + 8, dtype=q.dtype)[1:-7].view(q.shape)
    with pytest.raises(ArgumentError, match=r"^q: starts 2 bytes"):
        op(unaligned, k, v)
    with pytest.raises(ArgumentError, match=r"^dtype: q is torch.float16"):
        op(q.half(), k, v)
    with pytest.raises(ArgumentError, match=r"^scale: is nan"):
        op(q, k, v, scale=math.nan)
    with pytest.raises(ArgumentError, match=r"^scale: is a list"):
        op(q, k, v, scale=[1.0])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^v: has layout torch.sparse_coo"):
        op(q, k, v.to_sparse())
    with pytest.raises(ArgumentError, match=r"^k: is a ndarray"):
        op(q, k.float().numpy(), v)  # type: ignore[arg-type]
    assert on_cpu.launches == 1
    assert_right(op, q, k, v)


def test_a_grid_too_large_is_the_tensors_fault(on_cpu: Any, op: AttentionOp) -> None:
    q = tensor(1, 1, 1, 64).expand(2**20, 2**20, 1, 64)
    with pytest.raises(ArgumentError, match="allowed: up to 2,147,483,647"):
        op(q, q, q)
    assert on_cpu.launches == 0


def test_remembered_calls_are_bounded(op: AttentionOp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MAX_CALLS", 3)
    for seqlen_k in range(1, 9):
        assert_right(op, *qkv(1, 1, seqlen_k, 2, 2))
    assert len(op.forward._calls) <= 3


def test_forward_mode_gradient_is_refused_not_dropped(op: AttentionOp) -> None:
    q, k, v = qkv()
    with forward_ad.dual_level():
        with pytest.raises(ArgumentError, match=r"^k: has a forward-mode gradient"):
            op(q, forward_ad.make_dual(k, torch.ones_like(k)), v)
        assert_right(op, q, k, v)


def test_parameters_and_subclasses_work(op: AttentionOp) -> None:
    q, k, v = qkv()
    assert torch.equal(op(torch.nn.Parameter(q, requires_grad=False), k, v), op(q, k, v))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit")
@pytest.mark.parametrize(
    "transform",
    [
        lambda call, q: torch.vmap(call)(q.unsqueeze(0))[0],
        lambda call, q: torch.func.functionalize(call)(q),
        lambda call, q: cast(Any, torch.jit.trace(call, (torch.zeros_like(q),)))(q),
    ],
    ids=["vmap", "functionalize", "jit.trace"],
)
def test_wrapped_and_recorded_tensors_go_through_torch(op: AttentionOp, transform: Callable) -> None:
    q, k, v = qkv()
    assert torch.equal(transform(lambda x: op(x, k, v), q), op(q, k, v))


def test_torch_op_is_the_same_op(op: AttentionOp) -> None:
    q, k, v = qkv()
    out, lse = torch.ops.fagen.call_causal(q, k, v, 0.25)
    expected, expected_lse = op(q, k, v, scale=0.25, return_lse=True)
    assert torch.equal(out, expected) and torch.equal(lse, expected_lse)
    with pytest.raises(ArgumentError, match=r"^k: heads is 5"):
        torch.ops.fagen.call_causal(q, k[:, :, :1].expand(2, 40, 5, 64), v[:, :, :1].expand(2, 40, 5, 64))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_graph_break(op: AttentionOp, dynamic: bool) -> None:
    def model(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out, lse = op(q + 1, k, v, scale=0.5, return_lse=True)
        return out * 2, lse, op(out, k, v)

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for seqlen in (17, 40):
        inputs = qkv(seqlen_q=seqlen, seqlen_k=seqlen)
        for found, expected in zip(compiled(*inputs), model(*inputs), strict=True):
            assert torch.equal(found, expected)
    with pytest.raises(Exception, match=r"allowed: 64 \(problem.head_dim\)"):
        compiled(*(x[..., :32] for x in qkv()))


def test_opcheck(op: AttentionOp) -> None:
    torch.library.opcheck(torch.ops.fagen.call_causal.default, qkv(), {"scale": 0.5})


def test_traced_tensors_keep_the_op(op: AttentionOp) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda q, k, v: op(q, k, v))(*qkv()).graph
    assert torch.ops.fagen.call_causal.default in [node.target for node in graph.nodes]


def test_pinned_to_another_arch(problem_spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real `Kernels.on`
    monkeypatch.setattr(kernels.context, "capability", lambda device: ARCHES["sm_90a"].capability)
    monkeypatch.setattr(kernels.context, "device_name", lambda device: "a GPU")
    op = fagen.load(problem_spec("call_pinned"), arch="sm_80")
    with pytest.raises(LaunchError, match=r"pinned to sm_80; cuda:0 is a GPU, sm_90a"):
        op.prepare(0)


@pytest.mark.parametrize(("pinned", "arch"), [(None, "sm_89"), ("sm_89", "sm_89")])
def test_builds_for_the_arch_of_the_device(
    problem_spec: Spec, monkeypatch: pytest.MonkeyPatch, pinned: str | None, arch: str
) -> None:
    built = []

    def compile_sources(sources: list[Any]) -> list[Any]:
        built.extend(source.arch for source in sources)
        return sources

    monkeypatch.undo()
    monkeypatch.setattr(kernels.context, "capability", lambda device: ARCHES[arch].capability)
    monkeypatch.setattr(kernels, "compile_sources", compile_sources)
    monkeypatch.setattr(kernels.module, "load", lambda artifact, threads, smem_bytes, device: artifact)
    monkeypatch.setattr(kernels.context, "sms", lambda device: 132)
    op = fagen.load(problem_spec("call_arch"), arch=pinned)
    op.prepare(1)
    op.prepare(1)
    assert set(built) == {arch} and len(built) == 4, "once each kernel"
    assert op.name == ("call_arch" if pinned is None else "call_arch__sm_89")


def test_v3_on_another_gpu_is_refused(problem_spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(kernels.context, "capability", lambda device: (8, 0))
    with pytest.raises(PlanError, match=r"family is 'v3'; allowed on sm_80: v1, v2"):
        fagen.load(problem_spec("call_v3_arch", "v3")).prepare(0)


def test_a_gpu_without_a_row_is_refused(problem_spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(kernels.context, "capability", lambda device: (6, 0))
    with pytest.raises(FagenError, match=r"6\.0"):
        fagen.load(problem_spec("call_no_arch")).prepare(0)
