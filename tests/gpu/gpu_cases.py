"""What the GPU tests share: ops of the shipped specs, random inputs, and what it means to be right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import Tensor

import fagen
from fagen.bench.expected import random_inputs
from fagen.emu import settings
from fagen.ops import reference
from fagen.ops.forward import AttentionOp
from fagen.paths import SPECS
from fagen.plan.launch import Shape

GUARD = {"cuda": 2**20, "cpu": 2**12}  # bytes on either side of an output; the emulator checks addresses, too
POISON = 0xFF  # as a byte pattern a NaN in every element type
SCORES_AT_ONCE = 2**26  # of the reference
SEEDS = range(3)  # of the emulator

# In the emulator: tiles so small that there are many of them at small sizes.
SMALL: dict[str, dict[str, Any]] = {
    "v2": {"schedule.tile": {"q": 32, "kv": 32}, "schedule.roles.math.warps": 2, "schedule.stages.kv": 3},
    "v3": {"schedule.tile": {"q": 64, "kv": 32}, "schedule.roles.math.warps": 4, "schedule.stages.kv": 2},
}
# The shipped v3 specs by head_dim and head_dim_v; their tiles are pinned.
SHIPPED_V3 = {
    (64, 64): "h200_fa3_d64",
    (96, 96): "h200_fa3_d96",
    (128, 128): "h200_fa3",
    (192, 128): "h200_fa3_d192",
    (256, 256): "h200_fa3_d256",
}
PLANNED = {"schedule.tile": {"q": None, "kv": None}}


class Cases:
    """One family on one device; reached through the fixture `cases`."""

    def __init__(self, family: str, emulated: bool):
        self.family = family
        self.small = emulated  # sizes had better be, too
        self.device = "cpu" if emulated else "cuda"

    def op(
        self, *, name: str | None = None, schedule: Mapping[str, Any] | None = None, **problem: Any
    ) -> AttentionOp:
        """The family's shipped spec (bf16, head_dim 128, bshd, causal) with keys of `problem` changed.

        `schedule` has dotted keys, e.g. {"softmax.rescale": "always"}; the planner chooses the others then.
        """
        overrides: dict[str, Any] = {f"problem.{key}": value for key, value in problem.items()}
        dim = problem.get("head_dim", 128)
        dims = dim, problem.get("head_dim_v", dim)
        spec = {"v2": "a100_fa2", "v3": "h200_fa3"}[self.family]
        if self.small:
            overrides |= SMALL[self.family]
        elif self.family == "v3" and dims in SHIPPED_V3 and not schedule:
            spec = SHIPPED_V3[dims]
        else:
            overrides |= PLANNED
        overrides |= {f"schedule.{key}": value for key, value in (schedule or {}).items()}
        if name is not None:
            overrides["name"] = name
        return fagen.load(SPECS / f"{spec}.yaml", overrides, device="emu" if self.small else None)

    def inputs(
        self,
        op: AttentionOp,
        batch: int,
        seqlen_q: int,
        seqlen_k: int,
        heads_q: int,
        heads_kv: int | None = None,
        seed: int = 0,
    ) -> tuple[Any, ...]:
        """All that the op takes: standard normal q, k, v; packed sequences also their offsets and lengths."""
        shape = Shape(batch, seqlen_q, seqlen_k, heads_q, heads_q if heads_kv is None else heads_kv)
        return random_inputs(op.spec.problem, shape, seed, self.device)

    def packed(
        self,
        op: AttentionOp,
        lengths_q: Sequence[int],
        lengths_k: Sequence[int],
        heads_q: int,
        heads_kv: int | None = None,
        *,
        unused: int = 0,
        seed: int = 0,
    ) -> tuple[Any, ...]:
        """The same for sequences of these lengths, with `unused` rows after the last; those hold NaN."""
        sizes = (sum(lengths_q) + unused, sum(lengths_k) + unused)
        q, k, v, *_ = self.inputs(op, 1, *sizes, heads_q, heads_kv, seed)
        for x, used in ((q, sum(lengths_q)), (k, sum(lengths_k)), (v, sum(lengths_k))):
            x[used:] = math.nan
        offsets = (self.offsets(lengths) for lengths in (lengths_q, lengths_k))
        return q, k, v, *offsets, max(lengths_q), max(lengths_k)

    def offsets(self, lengths: Sequence[int]) -> Tensor:
        """Where sequences of these lengths start, and the end."""
        return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=self.device)

    def run(self, op: AttentionOp, *inputs: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """out and LSE, in memory that was full of NaN and whose surroundings must keep their bytes.

        In the emulator the same for every seed.
        """
        if not self.small:
            with guarded_memory():
                return op(*inputs, return_lse=True, **options)
        results = []
        for seed in SEEDS:
            with settings.override(seed=seed), guarded_memory():
                results.append(op(*inputs, return_lse=True, **options))
        for other in results[1:]:
            for found, first in zip(other, results[0], strict=True):
                assert torch.equal(found.view(torch.uint8), first.view(torch.uint8))  # NaN, too
        return results[0]

    def assert_right(self, op: AttentionOp, *inputs: Any, entries: Iterable[int] | None = None) -> Tensor:
        """out, which is within tolerance of fp64, as LSE is, for these sequences of the batch or for all."""
        result = self.run(op, *inputs)
        self.assert_result(op, inputs, result, entries)
        return result[0]

    def assert_result(
        self,
        op: AttentionOp,
        inputs: tuple[Any, ...],
        result: tuple[Tensor, Tensor],
        entries: Iterable[int] | None = None,
    ) -> None:
        """The same for a result that is there already."""
        problem, q, (out, lse) = op.spec.problem, inputs[0], result
        assert out.shape == (*q.shape[:-1], problem.dim_v) and out.dtype == q.dtype and out.is_contiguous()
        axes = {"bshd": (0, 2, 1), "bhsd": (0, 1, 2), "thd": (1, 0)}[problem.layout]
        assert lse.shape == tuple(q.shape[axis] for axis in axes) and lse.dtype == torch.float32
        if out.numel() == 0:
            return

        parts = []
        for some, found, found_lse in _parts(inputs, result, entries):
            exact, exact_lse = reference.attention(problem, *some)
            assert torch.equal(found_lse == -math.inf, exact_lse == -math.inf)
            # 1e-3, but no better than fp32 holds huge ones
            lse_error = (found_lse.double() - exact_lse).abs() / (1e-3 * exact_lse.abs()).clamp(1.0)
            assert (torch.where(exact_lse == -math.inf, 0.0, lse_error) <= 1e-3).all()
            parts.append((found, reference.plain_attention(problem, *some), exact))
        found, plain, exact = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        error = (found.to(exact.dtype) - exact).abs().max().item()
        assert error <= reference.allowed_error(problem, plain, exact)  # false for NaN


def _parts(
    inputs: tuple[Any, ...], result: tuple[Tensor, Tensor], entries: Iterable[int] | None
) -> Iterator[tuple[tuple[Tensor, ...], Tensor, Tensor]]:
    """What the reference takes of these sequences, or of all, with their out and LSE; not too much a time."""
    (q, k, v, *packing), (out, lse) = inputs, result
    if packing and entries is None:
        yield inputs[:5], out, lse
    elif packing:
        starts_q, starts_k = (offsets.tolist() for offsets in packing[:2])
        for entry in entries or ():
            rows, keys = (slice(*starts[entry : entry + 2]) for starts in (starts_q, starts_k))
            own = q[rows], k[keys], v[keys]
            yield (*own, *(torch.tensor([0, len(x)]) for x in own[:2])), out[rows], lse[:, rows]
    else:
        scores = q[0, ..., 0].numel() * max(k.shape[1:3])
        chosen = torch.tensor(list(range(len(q)) if entries is None else entries), device=q.device)
        for some in chosen.split(max(1, SCORES_AT_ONCE // max(1, scores))):
            yield (q[some], k[some], v[some]), out[some], lse[some]


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
