"""A stand-in for the GPU: a launcher that reads the kernel's parameters and computes on the CPU."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fagen.ops import checks, forward, reference
from fagen.plan.arguments import Arguments
from fagen.plan.launch import Launch
from fagen.plan.params import ADDRESSES
from fagen.spec.model import Spec

SMS = 132


class CpuLauncher:
    """Takes the place of a kernel's launcher; addresses are the CPU's."""

    launches: int = 0  # of all launchers

    def __init__(self, spec: Spec, launch: Launch, arguments: Arguments):
        self.spec, self.arguments = spec, arguments
        self.p = launch.scalars
        assert launch.grid

    def __call__(self, stream: int, *addresses: int) -> None:
        CpuLauncher.launches += 1
        at = dict(zip(ADDRESSES, addresses, strict=False))
        p, problem = self.p, self.spec.problem
        if problem.layout == "thd":
            batch, rows_q, rows_k = (), p.tokens_q, p.tokens_k
            lse_sizes = (p.heads_q, p.tokens_q)
            offsets = [_at(at[f"cu_seqlens_{x}"], p.batch + 1, torch.int32) for x in "qk"]
        else:
            problem = problem.model_copy(update={"layout": "bshd"})
            batch, rows_q, rows_k = (p.batch,), p.seqlen_q, p.seqlen_k
            lse_sizes = (p.batch, p.heads_q, p.seqlen_q)
            offsets = []
        heads_kv = p.heads_q // p.heads_per_kv
        q = self._view("q", at["q"], (*batch, rows_q, p.heads_q, problem.head_dim))
        k = self._view("k", at["k"], (*batch, rows_k, heads_kv, problem.head_dim))
        v = self._view("v", at["v"], (*batch, rows_k, heads_kv, problem.dim_v))
        out = self._view("out", at["out"], (*batch, rows_q, p.heads_q, problem.dim_v))
        scale = p.scale_log2 / math.log2(math.e)
        result, result_lse = reference.attention(problem, q, k, v, *offsets, scale=scale)
        out.copy_(result)
        if at["lse"]:
            _at(at["lse"], math.prod(lse_sizes), torch.float32).view(lse_sizes).copy_(result_lse)

    def _view(self, name: str, address: int, sizes: tuple[int, ...]) -> Tensor:
        """[batch, rows, heads, dim] or [rows, heads, dim] through the strides that the kernel would use."""
        axes = ("batch", "row", "head")[4 - len(sizes) :]
        strides = (*(int(self.arguments.numbers[f"{name}_{axis}_stride"]) for axis in axes), 1)
        dtype = checks.torch_dtype(self.spec.problem)
        extent = self.arguments.extents[name]
        if extent == 0:
            return torch.empty(sizes, dtype=dtype)
        return _at(address, extent // dtype.itemsize, dtype).as_strided(sizes, strides)


def _at(address: int, elements: int, dtype: torch.dtype) -> Tensor:
    memory = (ctypes.c_char * (elements * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> type[CpuLauncher]:
    """Ops take CPU tensors and "launch" on the CPU; `launches` counts from 0."""

    def load(op: forward.AttentionOp, device: int | None) -> forward._Loaded:
        return forward._Loaded(op._plan, partial(CpuLauncher, op.spec), SMS)

    monkeypatch.setattr(CpuLauncher, "launches", 0)
    monkeypatch.setattr(checks, "_check_device", lambda *_: None)
    monkeypatch.setattr(forward.AttentionOp, "_load", load)
    return CpuLauncher


@pytest.fixture
def problem_spec() -> Callable[..., dict[str, Any]]:
    """A spec with a name of its own, bf16 and head_dim 64 unless told otherwise; v3 if `family` says so."""

    def spec(name: str, family: str = "v2", **problem: Any) -> dict[str, Any]:
        return {
            "name": name,
            "family": family,
            "arch": {"v2": "sm_80", "v3": "sm_90a"}[family],
            "problem": {"dtype": "bf16", "head_dim": 64, **problem},
        }

    return spec
