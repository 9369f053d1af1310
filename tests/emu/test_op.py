"""Ops in the emulator: chosen by device, right under every seed, and torch sees the same op as on a GPU.

The cases of shapes, strides and values are those of tests/gpu, marked `emulated`.
"""

from __future__ import annotations

import resource
import time
from typing import Any

import pytest
import torch
from torch import Tensor

import fagen
from fagen.bench.trial import emulated_trial
from fagen.compile.cache import Cache
from fagen.emit.render import render
from fagen.emu import host, settings
from fagen.errors import ArgumentError
from fagen.ops import reference
from fagen.ops.op import AttentionOp
from fagen.paths import SPECS
from fagen.plan.kernels import main_kernel
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

SMALL: dict[str, Any] = {
    "problem.head_dim": 16,
    "schedule": {"tile": {"q": 32, "kv": 32}, "roles": {"math": {"warps": 2}}},
}


@pytest.fixture(scope="module")
def op() -> AttentionOp:
    return fagen.load(SPECS / "a100_fa2.yaml", SMALL, device="emu")


def qkv(seqlen_q: int = 40, seqlen_k: int = 70, heads_q: int = 4, heads_kv: int = 2) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    sizes = ((1, seqlen_q, heads_q, 16), (1, seqlen_k, heads_kv, 16), (1, seqlen_k, heads_kv, 16))
    return tuple(torch.randn(size, generator=generator).bfloat16() for size in sizes)


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_kernels_are_right_under_five_seeds(path):
    done = emulated_trial(fagen.load(path, device="emu"), Shape(1, 300, 333, 2, 1), 0, range(5))
    assert done.right and done.seeds == (0, 1, 2, 3, 4)


def test_a_shipped_kernel_is_quick(tmp_path):
    """One head of 128 x 256 at head_dim 128: at most 2 s with loading, and 15 s of the host's compiler.

    In seconds of CPU: other tests run at the same time.
    """

    def compiler_seconds() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    spec = load_spec(SPECS / "h200_fa2.yaml")
    before = compiler_seconds()
    host.compile_source(render(main_kernel(plan(spec))), Cache(tmp_path))
    assert compiler_seconds() - before <= 15
    op = fagen.load(spec, device="emu")
    started = time.process_time()
    op(*(torch.ones(1, n, 1, 128, dtype=torch.bfloat16) for n in (128, 256, 256)))
    assert time.process_time() - started <= 2


def test_cpu_tensors_go_to_the_emulator_where_there_is_no_gpu(op, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    by_itself = fagen.load(SPECS / "a100_fa2.yaml", SMALL)
    assert by_itself is not op
    assert torch.equal(by_itself(*qkv()), op(*qkv()))


def test_cpu_tensors_beside_a_gpu_are_refused_unless_asked_for(op, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ArgumentError, match=r'^q: is on cpu; allowed: CUDA devices .*device="emu"'):
        fagen.load(SPECS / "a100_fa2.yaml", SMALL)(*qkv(41))
    op(*qkv(41))


def test_results_do_not_depend_on_how_many_clusters_run_at_once(op):
    results = []
    for os_threads in (1, 3):
        with settings.override(os_threads=os_threads, seed=5):
            results.append(op(*qkv(200, 100)))
    assert torch.equal(*results)


def test_torch_op_is_the_same_op(op):
    inputs = qkv()
    found = getattr(torch.ops.fagen, op.name)(*inputs, 0.5)
    for one, other in zip(found, op(*inputs, scale=0.5, return_lse=True), strict=True):
        assert torch.equal(one, other)


def test_gradients_through_torch_and_without(op):
    inputs = tuple(x.requires_grad_() for x in qkv())
    out, lse = op(*inputs, return_lse=True)
    gradient = getattr(torch.ops.fagen, f"{op.name}_backward")
    with torch.no_grad():
        direct = gradient(torch.ones_like(out), None, *inputs, out, lse)
    # The order in which dQ is summed differs from run to run.
    dq, *others = torch.autograd.grad(out.sum(), inputs)
    torch.testing.assert_close(dq, direct[0])
    for one, other in zip(others, direct[1:], strict=True):
        assert torch.equal(one, other)


def test_compiles_without_a_graph_break(op):
    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return op(q + 1, k, v) * 2

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*qkv()), model(*qkv()))


def test_opcheck(op):
    torch.library.opcheck(getattr(torch.ops.fagen, op.name).default, qkv())


def test_preparing_builds_for_the_emulator(op, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    op.prepare()
    assert list(op.forward.kernels._loaded) == list(op.backward.kernels._loaded) == [None]


def test_a_query_that_sees_no_key(op):
    out, lse = op(*qkv(40, 8), return_lse=True)
    exact, exact_lse = reference.attention(op.spec.problem, *qkv(40, 8))
    assert torch.equal(out == 0, exact == 0) and torch.equal(lse.isinf(), exact_lse.isinf())
