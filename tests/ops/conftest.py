"""A stand-in for the GPU: a launcher that reads the kernel's parameters and computes on the CPU."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from fagen.ops import checks, forward, reference
from fagen.plan.params import FORWARD, POINTERS
from fagen.spec.model import Spec


class CpuLauncher:
    """Takes the place of a kernel's launcher; addresses are the CPU's."""

    launches: int = 0  # of all launchers

    def __init__(self, spec: Spec, grid: int, scalars: tuple[int | float, ...]):
        names = [param.name for param in FORWARD[POINTERS:]]
        self.spec = spec
        self.p = SimpleNamespace(**dict(zip(names, scalars, strict=True)))
        assert grid == self.p.batch * self.p.heads_q * self.p.q_tiles

    def __call__(self, stream: int, q: int, k: int, v: int, out: int, lse: int) -> None:
        CpuLauncher.launches += 1
        p, problem = self.p, self.spec.problem.model_copy(update={"layout": "bshd"})
        heads_kv = p.heads_q // p.heads_per_kv
        q_view = self._view("q", q, p.seqlen_q, p.heads_q, problem.head_dim)
        k_view = self._view("k", k, p.seqlen_k, heads_kv, problem.head_dim)
        v_view = self._view("v", v, p.seqlen_k, heads_kv, problem.dim_v)
        result, result_lse = reference.attention(
            problem, q_view, k_view, v_view, scale=p.scale_log2 / math.log2(math.e)
        )
        self._view("out", out, p.seqlen_q, p.heads_q, problem.dim_v).copy_(result)
        if lse:
            sizes = (p.batch, p.heads_q, p.seqlen_q)
            _at(lse, math.prod(sizes), torch.float32).view(sizes).copy_(result_lse)

    def _view(self, name: str, address: int, rows: int, heads: int, dim: int) -> Tensor:
        """[batch, rows, heads, dim] through the strides that the kernel would use."""
        sizes = (self.p.batch, rows, heads, dim)
        strides = (*(getattr(self.p, f"{name}_{axis}_stride") for axis in ("batch", "row", "head")), 1)
        if 0 in sizes:
            return torch.empty(sizes, dtype=checks.torch_dtype(self.spec.problem))
        reach = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        return _at(address, reach, checks.torch_dtype(self.spec.problem)).as_strided(sizes, strides)


def _at(address: int, elements: int, dtype: torch.dtype) -> Tensor:
    memory = (ctypes.c_char * (elements * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> type[CpuLauncher]:
    """Ops take CPU tensors and "launch" on the CPU; `launches` counts from 0."""

    def load(op: forward.AttentionOp, device: int | None) -> forward._Loaded:
        return forward._Loaded(op._plan, partial(CpuLauncher, op.spec))

    monkeypatch.setattr(CpuLauncher, "launches", 0)
    monkeypatch.setattr(checks, "_check_device", lambda *_: None)
    monkeypatch.setattr(forward.AttentionOp, "_load", load)
    return CpuLauncher


@pytest.fixture
def problem_spec() -> Callable[..., dict[str, Any]]:
    """A spec with a name of its own, bf16 and head_dim 64 unless told otherwise."""

    def spec(name: str, **problem: Any) -> dict[str, Any]:
        return {
            "name": name,
            "family": "v2",
            "arch": "sm_80",
            "problem": {"dtype": "bf16", "head_dim": 64, **problem},
        }

    return spec
