"""What the GPU tests share: ops of the shipped spec, random inputs, and what it means to be right.

Tests marked `emulated` run in the emulator too, with small tiles and sizes; the mark's arguments name the
values of a parameter that do: `emulated(head_dim=[8, 40])`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import fagen
from fagen.emu import settings
from fagen.ops import reference
from fagen.ops.checks import torch_dtype
from fagen.ops.forward import AttentionOp
from fagen.paths import SPECS

GUARD = {"cuda": 2**20, "cpu": 2**12}  # bytes on either side of an output; the emulator checks addresses, too
POISON = 0xFF  # as a byte pattern a NaN in every element type
SCORES_AT_ONCE = 2**26  # of the reference


SEEDS = range(5)  # of the emulator
SMALL = {"schedule.tile": {"q": 32, "kv": 32}, "schedule.roles.math.warps": 2, "schedule.stages.kv": 3}


class Cases:
    """Reached through the fixture `cases`."""

    def __init__(self, emulated: bool):
        self.small = emulated  # sizes had better be, too
        self.device = "cpu" if emulated else "cuda"

    def op(self, **problem: Any) -> AttentionOp:
        """The shipped spec (bf16, head_dim 128, bshd, causal) with keys of `problem` changed."""
        overrides = {f"problem.{key}": value for key, value in problem.items()}
        if self.small:
            return fagen.load(SPECS / "a100_fa2.yaml", overrides | SMALL, device="emu")
        return fagen.load(SPECS / "a100_fa2.yaml", overrides)

    def qkv(
        self,
        op: AttentionOp,
        batch: int,
        seqlen_q: int,
        seqlen_k: int,
        heads_q: int,
        heads_kv: int | None = None,
        seed: int = 0,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Standard normal q, k, v in the op's layout and dtype."""
        problem, generator = op.spec.problem, torch.Generator(self.device).manual_seed(seed)

        def tensor(length: int, heads: int, dim: int) -> Tensor:
            middle = (length, heads) if problem.layout == "bshd" else (heads, length)
            return torch.randn(
                (batch, *middle, dim), generator=generator, dtype=torch_dtype(problem), device=self.device
            )

        kv = heads_q if heads_kv is None else heads_kv
        return (
            tensor(seqlen_q, heads_q, problem.head_dim),
            tensor(seqlen_k, kv, problem.head_dim),
            tensor(seqlen_k, kv, problem.dim_v),
        )

    def run(self, op: AttentionOp, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        """out and LSE, in memory that was full of NaN and whose surroundings must keep their bytes.

        In the emulator the same for every seed.
        """
        if not self.small:
            with guarded_memory():
                return op(q, k, v, return_lse=True, **options)
        results = []
        for seed in SEEDS:
            with settings.override(seed=seed), guarded_memory():
                results.append(op(q, k, v, return_lse=True, **options))
        for out, lse in results[1:]:
            assert torch.equal(out, results[0][0]) and torch.equal(lse, results[0][1])
        return results[0]

    def assert_right(
        self, op: AttentionOp, q: Tensor, k: Tensor, v: Tensor, *, entries: Iterable[int] | None = None
    ) -> None:
        """out within tolerance of fp64, LSE within 1e-3, for these batch entries or all."""
        self.assert_result(op, (q, k, v), self.run(op, q, k, v), entries)

    def assert_result(
        self,
        op: AttentionOp,
        inputs: tuple[Tensor, Tensor, Tensor],
        result: tuple[Tensor, Tensor],
        entries: Iterable[int] | None = None,
    ) -> None:
        """The same for a result that is there already."""
        out, lse = result
        problem, batch = op.spec.problem, inputs[0].shape[0]
        row, head = (1, 2) if problem.layout == "bshd" else (2, 1)
        q, k, _ = inputs
        sizes = [*q.shape[:3], problem.dim_v]
        assert list(out.shape) == sizes and out.dtype == q.dtype and out.is_contiguous()
        assert list(lse.shape) == [batch, q.shape[head], q.shape[row]] and lse.dtype == torch.float32
        if out.numel() == 0:
            return

        at_once = max(1, SCORES_AT_ONCE // max(1, q.shape[head] * q.shape[row] * k.shape[row]))
        parts = []
        for chosen in torch.tensor(list(range(batch) if entries is None else entries)).split(at_once):
            chosen = chosen.to(q.device)
            some = [x[chosen] for x in inputs]
            exact, exact_lse = reference.attention(problem, *some)
            plain = reference.plain_attention(problem, *some)
            found, found_lse = out[chosen], lse[chosen].to(exact_lse.dtype)
            assert torch.equal(found_lse == -math.inf, exact_lse == -math.inf)
            lse_error = torch.where(exact_lse == -math.inf, 0.0, (found_lse - exact_lse).abs()).max().item()
            assert lse_error <= 1e-3
            parts.append((found, plain, exact))
        found, plain, exact = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        error = (found.to(exact.dtype) - exact).abs().max().item()
        assert error <= reference.allowed_error(problem, plain, exact)  # false for NaN


@contextmanager
def guarded_memory() -> Iterator[None]:
    """The two outputs that an op takes from torch hold NaN, between guards that must keep their bytes."""
    buffers: list[tuple[Tensor, int, int]] = []

    def new_empty(like: Tensor, sizes: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        dtype = dtype or like.dtype
        first = GUARD[like.device.type]
        end = first + math.prod(sizes) * dtype.itemsize
        buffer = torch.full((end + first,), POISON, dtype=torch.uint8, device=like.device)
        buffers.append((buffer, first, end))
        return buffer[first:end].view(dtype).view(sizes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "new_empty", new_empty)
        yield
    assert len(buffers) == 2, "out and LSE"
    for buffer, first, end in buffers:
        assert torch.all(buffer[:first] == POISON) and torch.all(buffer[end:] == POISON)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cases" in metafunc.fixturenames:
        devices: list[Any] = [pytest.param("cuda", marks=pytest.mark.gpu)]
        if metafunc.definition.get_closest_marker("emulated"):
            devices.append("emu")
        metafunc.parametrize("cases", devices, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    large = [item for item in items if _only_on_a_gpu(item)]
    if large:
        config.hook.pytest_deselected(items=large)
        items[:] = [item for item in items if item not in large]


def _only_on_a_gpu(item: pytest.Item) -> bool:
    """Whether it is an emulated test with parameters that its mark leaves out."""
    mark = item.get_closest_marker("emulated")
    if mark is None or not isinstance(item, pytest.Function):
        return False
    params = item.callspec.params
    return params["cases"] == "emu" and any(params[key] not in kept for key, kept in mark.kwargs.items())


@pytest.fixture(scope="session")
def cases(request: pytest.FixtureRequest) -> Cases:
    return Cases(emulated=request.param == "emu")
