"""A stand-in for the GPU: launchers that read their kernels' parameters and compute on the CPU."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fagen.ops import checks, dropout_mask, reference, reference_gradients
from fagen.ops.descales import Descales
from fagen.ops.kernels import Built, Kernels, Loaded
from fagen.ops.reference_fp8 import dequantized
from fagen.plan.arguments import Arguments
from fagen.plan.descales import sizes
from fagen.plan.kernels import KernelPlan, kernels
from fagen.plan.launch import Launch, Shape

SMS = 132


class CpuLauncher:
    """Takes the place of a kernel's launcher; addresses are the CPU's.

    Of the kernels of a backward the one that multiplies does the work of all.
    """

    launches: int = 0  # of all launchers

    def __init__(self, kernel: KernelPlan, launch: Launch, arguments: Arguments):
        self.kernel, self.arguments = kernel, arguments
        self.problem = kernel.plan.spec.problem
        self.p = launch.scalars
        assert launch.grid

    def __call__(self, stream: int, *addresses: int) -> None:
        CpuLauncher.launches += 1
        with ThreadPoolExecutor(1) as thread:  # where torch lets it differentiate
            thread.submit(self._compute, *addresses).result()

    def _compute(self, *addresses: int) -> None:
        at = dict(zip(self.arguments.addresses, addresses, strict=True))
        problem, options = self.problem, {"scale": self.p.scale, **self._dropout(at["seed"])}
        packed = problem.layout == "thd"
        if not packed:
            problem = problem.model_copy(update={"layout": "bshd"})
        offsets = [self._offsets(at[f"cu_seqlens_{x}"]) for x in "qk"] if packed else []
        q, k, v = (self._tensor(name, at) for name in "qkv")
        if problem.is_fp8:
            problem = problem.model_copy(update={"v_transposed": False})
            descales = Descales(*(self._descale(name, at) for name in Descales._fields))
            q, k, v = dequantized(problem, q, k, v, descales, offsets)
        inputs = [q, k, v, *offsets]
        if self.kernel.name == "forward":
            out, lse = reference.attention(problem, *inputs, **options)
            self._tensor("out", at).copy_(out)
            if at["lse"]:
                self._lse("lse", at).copy_(lse)
            if at["row_stats"]:
                self._lse("row_stats", at).copy_(lse)
        elif self.kernel.name == "backward":
            if at["row_stats"] and self.kernel.plan.spec.family == "v1":
                assert torch.equal(
                    self._lse("row_stats", at), reference.attention(problem, *inputs)[1].float()
                )
            dlse = self._lse("dlse", at) if at["dlse"] else None
            dout = self._tensor("dout", at)
            found = reference_gradients.gradients(problem, *inputs, dout=dout, dlse=dlse, **options)
            for name, gradient in found._asdict().items():
                self._tensor(name, at).copy_(gradient)

    def _dropout(self, seed_at: int) -> dict[str, Any]:
        if not seed_at:
            return {}
        p = self.p
        seed, share = int(_at(seed_at, 1, torch.int64)), 1 - 1 / p.dropout_rescale
        kept = dropout_mask.kept(seed, p.batch, p.heads_q, p.seqlen_q, p.seqlen_k, share)
        return {"dropout_p": share, "kept": kept}

    def _offsets(self, address: int) -> Tensor:
        return _at(address, self.p.batch + 1, torch.int32)

    def _rows(self, tokens: int, length: int) -> tuple[int, ...]:
        return (tokens,) if self.problem.layout == "thd" else (self.p.batch, length)

    def _tensor(self, name: str, at: dict[str, int]) -> Tensor:
        """[batch, rows, heads, dim] or [rows, heads, dim] through the strides that the kernel would use."""
        p = self.p
        is_key = name.removeprefix("d") in "kv"
        rows = self._rows(p.tokens_k, p.seqlen_k) if is_key else self._rows(p.tokens_q, p.seqlen_q)
        heads = p.heads_q // p.heads_per_kv if is_key else p.heads_q
        has_keys_dim = name.removeprefix("d") in "qk"
        size = (*rows, heads, self.problem.head_dim if has_keys_dim else self.problem.dim_v)
        axes = ("batch", "row", "head")[4 - len(size) :]
        strides = (*(int(self.arguments.numbers[f"{name}_{axis}_stride"]) for axis in axes), 1)
        dtype = (checks.out_dtype if name == "out" else checks.torch_dtype)(self.problem)
        extent = self.arguments.extents[name]
        if extent == 0:
            return torch.empty(size, dtype=dtype)
        memory = _at(at[name], extent // dtype.itemsize, dtype)
        if name == "v" and self.problem.v_transposed:
            transposed = (p.batch, self.problem.dim_v, heads, p.seqlen_k)
            return memory.as_strided(transposed, strides).transpose(1, 3)
        return memory.as_strided(size, strides)

    def _descale(self, name: str, at: dict[str, int]) -> Tensor:
        """Through the strides that the kernel would use."""
        problem, p = self.problem, self.p
        own = sizes(problem, name, Shape(p.batch, p.seqlen_q, p.seqlen_k, p.heads_q, p.heads_kv))
        strides = (*(int(self.arguments.numbers[f"{name}_{axis}_stride"]) for axis in ("batch", "head")), 1)
        memory = _at(at[name], self.arguments.extents[name] // 4, torch.float32)
        return memory.as_strided(own, strides[: len(own)])

    def _lse(self, name: str, at: dict[str, int]) -> Tensor:
        """[batch, heads, rows] or [heads, rows]; of `row_stats` the first half."""
        *batch, rows = self._rows(self.p.tokens_q, self.p.seqlen_q)
        sizes = (*batch, self.p.heads_q, rows)
        return _at(at[name], math.prod(sizes), torch.float32).view(sizes)


def _at(address: int, elements: int, dtype: torch.dtype) -> Tensor:
    memory = (ctypes.c_char * (elements * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> type[CpuLauncher]:
    """Ops take CPU tensors and "launch" on the CPU; `launches` counts from 0."""

    def on(own: Kernels, device: int | None) -> Loaded:
        built = tuple(Built(kernel, partial(CpuLauncher, kernel)) for kernel in kernels(own._plan))
        return Loaded(own._plan, built, SMS)

    monkeypatch.setattr(CpuLauncher, "launches", 0)
    monkeypatch.setattr(checks, "_check_device", lambda *_: None)
    monkeypatch.setattr(Kernels, "on", on)
    return CpuLauncher


@pytest.fixture
def problem_spec() -> Callable[..., dict[str, Any]]:
    """A spec with a name of its own, bf16 and head_dim 64 unless told otherwise; `family` is v2's."""

    def spec(name: str, family: str = "v2", **problem: Any) -> dict[str, Any]:
        return {
            "name": name,
            "family": family,
            "arch": {"v1": "sm_80", "v2": "sm_80", "v3": "sm_90a"}[family],
            "problem": {"dtype": "bf16", "head_dim": 64, **problem},
        }

    return spec
