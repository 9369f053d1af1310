"""Ops of 8-bit q, k, v with the CPU in the GPU's place: descales, dtype of out, transposed v, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import fagen
from fagen.bench.expected import expected, random_inputs
from fagen.errors import ArgumentError
from fagen.ops.op import AttentionOp
from fagen.plan.launch import Shape

SHAPE = Shape(2, 33, 160, 6, 2)
DESCALES = ("q_descale", "k_descale", "v_descale")

Make = Callable[..., AttentionOp]


@pytest.fixture
def fp8_op(problem_spec: Callable[..., dict[str, Any]]) -> Make:
    def make(name: str, **problem: Any) -> AttentionOp:
        given = {"dtype": "e4m3", "passes": ["forward"], **problem}
        return fagen.load(problem_spec(f"fp8_{name}", "v3", **given))

    return make


@pytest.fixture
def op(fp8_op: Make, on_cpu: Any) -> AttentionOp:
    return fp8_op("plain", mask="causal")


def inputs(op: AttentionOp, shape: Shape = SHAPE) -> tuple[Any, ...]:
    return random_inputs(op.spec.problem, shape, seed=0, device="cpu")


def named(op: AttentionOp, shape: Shape = SHAPE) -> dict[str, Any]:
    q, k, v, *_, q_descale, k_descale, v_descale = inputs(op, shape)
    return {"q": q, "k": k, "v": v, "q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}


def assert_right(op: AttentionOp, *given: Any) -> None:
    out, lse = op(*given, return_lse=True)
    exact = expected(op.spec.problem, given)
    assert out.is_contiguous() and torch.equal(op(*given), out)
    torch.testing.assert_close(out, exact.out.to(out.dtype))
    torch.testing.assert_close(lse, exact.lse.float())


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("heads", {"mask": "causal"}),
        ("fp16", {"out_dtype": "fp16", "head_dim_v": 128}),
        ("e5m2", {"dtype": "e5m2", "layout": "bhsd", "softcap": 20.0}),
        ("blocks", {"fp8": {"scale": "block"}}),
        ("blocks_bhsd", {"fp8": {"scale": "block"}, "layout": "bhsd"}),
        ("packed", {"layout": "thd"}),
        ("transposed", {"v_transposed": True}),
        ("transposed_bhsd", {"v_transposed": True, "layout": "bhsd", "head_dim_v": 128}),
    ],
)
def test_result_and_lse(fp8_op: Make, name: str, problem: dict[str, Any]) -> None:
    op = fp8_op(name, **problem)
    out_dtype = {"fp16": torch.float16}.get(problem.get("out_dtype", ""), torch.bfloat16)
    given = inputs(op)
    assert op(*given).dtype == out_dtype
    assert_right(op, *given)


def test_descales_by_name_and_one_for_all(op: AttentionOp) -> None:
    given = named(op)
    one = {name: given[name][:1, 0].contiguous() for name in DESCALES}
    assert all(x.shape == (1,) for x in one.values())
    alike = {name: x.expand(2, 2) for name, x in one.items()}
    assert torch.equal(op(**given | one), op(**given | alike))
    assert not torch.equal(op(**given | one), op(**given))


def test_strides_of_descales(op: AttentionOp) -> None:
    given = named(op)
    strided = {name: given[name].t().contiguous().t() for name in DESCALES}
    strided["k_descale"] = torch.stack([given["k_descale"], torch.zeros(2, 2)], dim=-1)[..., 0]
    assert torch.equal(op(**given | strided), op(**given))


def test_slices_of_a_fused_8_bit_tensor(op: AttentionOp) -> None:
    given = named(op, Shape(2, 20, 20, 6, 2))
    fused = torch.cat([given[name] for name in "qkv"], dim=2)
    views: dict[str, Any] = {"q": fused[:, :, :6], "k": fused[:, :, 6:8], "v": fused[:, :, 8:]}
    assert torch.equal(op(**given | views), op(**given))


def test_a_warm_call_sees_other_descales(op: AttentionOp) -> None:
    given = named(op)
    before = op(**given)
    other = given | {"v_descale": given["v_descale"] * 2}
    torch.testing.assert_close(op(**other).float(), 2 * before.float())
    with pytest.raises(ArgumentError, match=r"^v_descale: is torch.bfloat16; allowed: torch.float32"):
        op(**given | {"v_descale": given["v_descale"].bfloat16()})
    assert torch.equal(op(**given), before)


def refusal(op: AttentionOp, on_cpu: Any, **given: Any) -> str:
    with pytest.raises(ArgumentError) as error:
        op(**given)
    assert on_cpu.launches == 0
    return str(error.value)


@pytest.mark.parametrize("name", DESCALES)
def test_a_descale_that_is_missing(op: AttentionOp, on_cpu: Any, name: str) -> None:
    given = named(op)
    del given[name]
    assert refusal(op, on_cpu, **given) == (
        f"{name}: is missing; {name[0]} means nothing without (problem.dtype: e4m3); allowed: a "
        "torch.Tensor, torch.float32, (batch, heads_kv), or (1,), one for all (problem.fp8.scale: head)"
    )


@pytest.mark.parametrize("name", DESCALES)
def test_a_descale_of_another_kind(op: AttentionOp, on_cpu: Any, name: str) -> None:
    given = named(op)

    def said(wrong: Any) -> str:
        return refusal(op, on_cpu, **given | {name: wrong})

    good = given[name]
    assert said(good.bfloat16()) == f"{name}: is torch.bfloat16; allowed: torch.float32 (use {name}.float())"
    assert said(good.double()).startswith(f"{name}: is torch.float64; allowed: torch.float32")
    assert said(good.to("meta")) == f"{name}: is on meta; allowed: cpu, as q"
    assert said(0.5).startswith(f"{name}: is a float; allowed: a torch.Tensor")
    assert said(numpy.ones((2, 2))).startswith(f"{name}: is a ndarray; allowed: a torch.Tensor")
    assert said(good.to_sparse()).startswith(f"{name}: has layout torch.sparse_coo")
    for wrong in ((2, 6), (2, 33, 2), (2,), (), (2, 1), (1, 1), (4,)):
        assert said(torch.ones(wrong)).startswith(
            f"{name}: has shape ({', '.join(map(str, wrong))}); allowed: (2, 2), that is (batch, heads_kv), "
            "or (1,), one for all (problem.fp8.scale: head)"
        )


@pytest.mark.parametrize("name", DESCALES)
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_the_values_of_descales_are_checked_where_the_environment_says_so(
    op: AttentionOp, on_cpu: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: float
) -> None:
    monkeypatch.setenv("FAGEN_CHECK_METADATA", "1")
    right: dict[str, Any] = named(op)
    wrong = right[name].clone()
    wrong[1, 0] = value
    said = refusal(op, on_cpu, **right | {name: wrong})
    assert said == f"{name}: is {value} at (1, 0); allowed: finite numbers from 0"
    right[name] = torch.zeros_like(wrong)
    op(**right)
    assert on_cpu.launches == 1


def test_descales_of_blocks(fp8_op: Make, on_cpu: Any) -> None:
    op = fp8_op("blocks_checked", fp8={"scale": "block"})
    given = named(op)
    said = refusal(op, on_cpu, **given | {"q_descale": torch.ones(2, 2, 1)})
    assert said == (
        "q_descale: has shape (2, 2, 1); allowed: (2, 6, 1), that is (batch, heads_q, ceil(seqlen_q / 128)) "
        "(problem.fp8.scale: block)"
    )
    said = refusal(op, on_cpu, **given | {"v_descale": torch.ones(1)})
    assert said == (
        "v_descale: has shape (1); allowed: (2, 2, 2), that is (batch, heads_kv, ceil(seqlen_k / 128)) "
        "(problem.fp8.scale: block)"
    )
    strided = given["k_descale"].transpose(1, 2).contiguous().transpose(1, 2)
    said = refusal(op, on_cpu, **given | {"k_descale": strided})
    assert said.startswith("k_descale: stride of its last dimension is 2; allowed: 1")


def test_descales_of_packed_sequences(fp8_op: Make, on_cpu: Any) -> None:
    op = fp8_op("packed_checked", layout="thd")
    given: tuple[Any, ...] = (*inputs(op)[:-1], torch.ones(3, 2))
    with pytest.raises(ArgumentError, match=r"^v_descale: has shape \(3, 2\); allowed: \(2, 2\)"):
        op(*given)
    assert on_cpu.launches == 0


@pytest.mark.parametrize("name", DESCALES)
@pytest.mark.parametrize("family", ["v1", "v2", "v3"])
def test_descales_of_what_was_never_quantised(
    problem_spec: Callable[..., dict[str, Any]], on_cpu: Any, family: str, name: str
) -> None:
    op = fagen.load(problem_spec(f"fp8_never_{family}", family))
    q = torch.zeros(1, 16, 2, 64, dtype=torch.bfloat16)
    said = refusal(op, on_cpu, q=q, k=q, v=q, **{name: torch.tensor([0.5])})
    assert said == (
        f"{name}: is given, but {name[0]} was never quantised (problem.dtype: bf16); allowed: leaving it out"
    )


def test_other_tensors(op: AttentionOp, on_cpu: Any) -> None:
    given = named(op)
    said = refusal(op, on_cpu, **given | {"k": given["k"].float().to(torch.float8_e5m2)})
    assert "k is torch.float8_e5m2" in said and "allowed: torch.float8_e4m3fn for all three" in said
    odd = torch.zeros(2, 33, 6, 72, dtype=torch.uint8).view(torch.float8_e4m3fn)[..., :64]
    said = refusal(op, on_cpu, **given | {"q": odd})
    assert said.startswith(
        "q: stride of its heads dimension is 72 elements; allowed: multiples of 16, so that"
    )


def test_a_transposed_v_has_its_own_sizes_and_strides(fp8_op: Make, on_cpu: Any) -> None:
    op = fp8_op("transposed_checked", v_transposed=True)
    given = named(op)
    assert given["v"].shape == (2, 2, 64, 160)

    def said(*sizes: int) -> str:
        v = torch.zeros(sizes, dtype=torch.uint8).view(torch.float8_e4m3fn)
        return refusal(op, on_cpu, **given | {"v": v})

    axes = (
        "(batch, sequence, heads, head_dim), v as (batch, heads, head_dim, sequence) (problem.layout: bshd)"
    )
    assert said(2, 2, 64) == f"v: has shape (2, 2, 64); allowed: 4 dimensions, {axes}"
    assert said(2, 160, 2, 64) == (
        "v: has shape (2, 160, 2, 64), third dimension 2; allowed: 64 (problem.head_dim), dimensions " + axes
    )
    assert said(2, 2, 64, 161).startswith("v: sequence is 161; allowed: 160, as in k")
    assert said(2, 1, 64, 160).startswith("v: heads is 1; allowed: 2, as in k")
    given = named(op, Shape(2, 33, 161, 6, 2))
    assert said(2, 2, 64, 161) == (
        "v: stride of its head_dim dimension is 161 elements; allowed: multiples of 16, so that every row "
        "starts 16-byte aligned (leave room for such a number of keys)"
    )
    given = named(op, Shape(2, 33, 162, 6, 2))
    assert given["v"].stride() == (2 * 64 * 176, 64 * 176, 176, 1)
    said_of_keys = refusal(op, on_cpu, **given)
    assert said_of_keys.endswith("seqlen_k is 162; allowed with problem.v_transposed: multiples of 4")


@pytest.mark.parametrize("shape", [Shape(0, 5, 5, 2, 2), Shape(2, 0, 5, 2, 2), Shape(2, 5, 0, 2, 2)])
@pytest.mark.parametrize("scale", ["head", "block"])
def test_nothing_to_compute(fp8_op: Make, on_cpu: Any, scale: str, shape: Shape) -> None:
    op = fp8_op(f"nothing_{scale}", fp8={"scale": scale})
    q = torch.zeros(shape.batch, shape.seqlen_q, 2, 64, dtype=torch.float8_e4m3fn)
    k = torch.zeros(shape.batch, shape.seqlen_k, 2, 64, dtype=torch.float8_e4m3fn)
    blocks = [-(-rows // 128) for rows in (shape.seqlen_q, shape.seqlen_k, shape.seqlen_k)]
    descales = [torch.ones(shape.batch, 2, *([n] if scale == "block" else [])) for n in blocks]
    out, lse = op(q, k, k, **dict(zip(DESCALES, descales, strict=True)), return_lse=True)
    assert out.shape == q.shape and out.dtype == torch.bfloat16 and not out.any()
    assert lse.isneginf().all() and on_cpu.launches == 0


def test_there_are_no_gradients(op: AttentionOp) -> None:
    given = named(op)
    assert op.backward is None
    for name in ("v_descale", "q"):
        leaf = given[name].detach().clone().requires_grad_()
        out = op(**given | {name: leaf})
        with pytest.raises(ArgumentError, match=r"require grad, but fp8_plain has no backward"):
            out.float().sum().backward()
        with torch.no_grad():
            assert torch.equal(op(**given | {name: leaf}), op(**given))


def test_fake_tensors_have_the_dtype_of_out(fp8_op: Make) -> None:
    op = fp8_op("fake", out_dtype="fp16", layout="bhsd", v_transposed=True, head_dim_v=128)
    with FakeTensorMode():
        q, k, v = (
            torch.empty(sizes, dtype=torch.float8_e4m3fn, device="cuda")
            for sizes in ((2, 6, 33, 64), (2, 2, 48, 64), (2, 2, 128, 48))
        )
        descales: dict[str, Any] = {name: torch.empty(2, 2, device="cuda") for name in DESCALES}
        out, lse = op(q, k, v, **descales, return_lse=True)
        assert (out.shape, out.dtype, out.device) == ((2, 6, 33, 128), torch.float16, q.device)
        assert (lse.shape, lse.dtype) == ((2, 6, 33), torch.float32)
        with pytest.raises(ArgumentError, match=r"^k_descale: has shape \(2, 6\); allowed: \(2, 2\)"):
            op(q, k, v, **descales | {"k_descale": descales["q_descale"].repeat(1, 3)})
        with pytest.raises(ArgumentError, match=r"^k_descale: is on cpu; allowed: cuda:0, as q"):
            op(q, k, v, **descales | {"k_descale": descales["q_descale"].cpu()})


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_graph_break(op: AttentionOp, dynamic: bool) -> None:
    def model(q: Tensor, k: Tensor, v: Tensor, descale: Tensor) -> tuple[Tensor, Tensor]:
        descales: dict[str, Any] = {name: descale * (i + 1) for i, name in enumerate(DESCALES)}
        out, lse = op(q.to(torch.float8_e4m3fn), k, v, **descales, scale=0.5, return_lse=True)
        return out * 2, lse

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for length in (17, 40):
        given = named(op, Shape(2, length, length, 6, 2))
        values = (given["q"].float(), given["k"], given["v"], given["k_descale"])
        for found, wanted in zip(compiled(*values), model(*values), strict=True):
            assert torch.equal(found, wanted)


def test_torch_op_is_the_same_op(op: AttentionOp) -> None:
    given = named(op)
    out, lse = torch.ops.fagen.fp8_plain(*given.values(), 0.25)
    wanted, wanted_lse = op(**given, scale=0.25, return_lse=True)
    assert torch.equal(out, wanted) and torch.equal(lse, wanted_lse)
    schema = str(torch.ops.fagen.fp8_plain.default._schema)
    assert "Tensor q_descale, Tensor k_descale, Tensor v_descale, float? scale=None" in schema


def test_opcheck(op: AttentionOp) -> None:
    # Not test_schema, which multiplies 8-bit tensors: torch cannot.
    checks = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    given = tuple(named(op).values())
    torch.library.opcheck(torch.ops.fagen.fp8_plain.default, given, {"scale": 0.5}, test_utils=checks)
