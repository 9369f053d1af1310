"""What the GPU tests share: ops of the shipped specs, random inputs, and what it means to be right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from gpu_entries import Entries, parts
from gpu_memory import guarded_memory
from torch import Tensor

import fagen
from fagen.bench.expected import expected_gradients, random_inputs, random_like
from fagen.emu import settings
from fagen.ops import reference
from fagen.ops.op import AttentionOp
from fagen.ops.reference_gradients import Gradients
from fagen.paths import SPECS
from fagen.plan.launch import Shape

SEEDS = range(3)  # of the emulator

SPEC = {"v1": "a100_fa1", "v2": "a100_fa2", "v3": "h200_fa3"}
# In the emulator: tiles so small that there are many of them at small sizes.
SMALL_BACKWARD = {
    "schedule.backward.tile": {"q": 32, "kv": 32},
    "schedule.backward.warps": {"q": 1, "kv": 2, "dq": 2},
}
SMALL: dict[str, dict[str, Any]] = {
    "v1": {"schedule.tile": {"q": None, "kv": 32}},  # the paper's rule bounds tile.q by head_dim
    "v2": {
        "schedule.tile": {"q": 32, "kv": 32},
        "schedule.roles.math.warps": 2,
        "schedule.stages.kv": 3,
        **SMALL_BACKWARD,
    },
    "v3": {
        "schedule.tile": {"q": 64, "kv": 32},
        "schedule.roles.math.warps": 4,
        "schedule.stages.kv": 2,
        **SMALL_BACKWARD,
    },
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
        spec = SPEC[self.family]
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
        results = []
        for _ in self.orders():
            with guarded_memory() as memory:
                results.append(op(*inputs, return_lse=True, **options))
            memory.assert_holds(*results[-1])
        assert_same_bits(*results)
        return results[0]

    def orders(self) -> Iterator[int]:
        """Once on a GPU; in the emulator with each of SEEDS in turn."""
        if not self.small:
            yield 0
            return
        for seed in SEEDS:
            with settings.override(seed=seed):
                yield seed

    def gradients(
        self,
        op: AttentionOp,
        *inputs: Any,
        dout: Tensor,
        dlse: Tensor | None = None,
        **options: Any,
    ) -> tuple[tuple[Tensor, Tensor], Gradients]:
        """out and LSE, the gradients of sum(out * dout) + sum(lse * dlse), in memory as in `run`; one run."""
        leaves = tuple(x.detach().requires_grad_() for x in inputs[:3])
        with guarded_memory() as memory:
            out, lse = op(*leaves, *inputs[3:], return_lse=True, **options)
            outputs, grads = ((out,), (dout,)) if dlse is None else ((out, lse), (dout, dlse))
            found = Gradients(*torch.autograd.grad(outputs, leaves, grads))
        memory.assert_holds(out, lse, *found)
        return (out.detach(), lse.detach()), found

    def assert_gradients(
        self,
        op: AttentionOp,
        *inputs: Any,
        dout: Tensor | None = None,
        dlse: Tensor | None = None,
        entries: Iterable[int] | None = None,
        scale: float | None = None,
    ) -> Gradients:
        """The gradients, which are within tolerance of fp64, as out and LSE are.

        Of these sequences of the batch, or of all. dout is standard normal if left out. In the emulator the
        same for every seed, dK and dV to the bit, and dQ where the op says that it is deterministic.
        """
        dout = self.dout(op, *inputs) if dout is None else dout
        runs = [self.gradients(op, *inputs, dout=dout, dlse=dlse, scale=scale) for _ in self.orders()]
        result, first = runs[0]
        self.assert_result(op, inputs, result, entries, scale)
        self.assert_near(
            op, inputs, *(found for _, found in runs), dout=dout, dlse=dlse, entries=entries, scale=scale
        )
        ordered = op.spec.problem.deterministic or self.family == "v1"
        assert_same_bits(*((*result, *(found if ordered else found[1:])) for result, found in runs))
        return first

    def assert_near(
        self,
        op: AttentionOp,
        inputs: tuple[Any, ...],
        *runs: Gradients,
        dout: Tensor,
        dlse: Tensor | None = None,
        entries: Iterable[int] | None = None,
        **options: Any,
    ) -> None:
        """The same for the gradients of runs that were before; `options` are those of the reference."""
        some = Entries(inputs, entries)
        some_dlse = None if dlse is None else some.of_lse(dlse)
        expected = expected_gradients(
            op.spec.problem, some.inputs, some.of_q(dout), dlse=some_dlse, **options
        )
        for found in runs:
            assert_whole(inputs, found)
            own = some.gradients(found)
            assert expected.has(own), f"errors {expected.errors(own)}, allowed {expected.allowed}"

    def dout(self, op: AttentionOp, *inputs: Any, seed: int = 1) -> Tensor:
        """Standard normal numbers with the sizes of out; NaN where that has a row of no sequence."""
        out = inputs[0].new_empty((*inputs[0].shape[:-1], op.spec.problem.dim_v))
        dout = random_like(out, seed)
        if inputs[3:]:
            dout[int(inputs[3][-1]) :] = math.nan
        return dout

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
        scale: float | None = None,
    ) -> None:
        """The same for a result that is there already."""
        problem, q, (out, lse) = op.spec.problem, inputs[0], result
        assert out.shape == (*q.shape[:-1], problem.dim_v) and out.dtype == q.dtype and out.is_contiguous()
        axes = {"bshd": (0, 2, 1), "bhsd": (0, 1, 2), "thd": (1, 0)}[problem.layout]
        assert lse.shape == tuple(q.shape[axis] for axis in axes) and lse.dtype == torch.float32
        if out.numel() == 0:
            return

        checked = []
        chosen = Entries(inputs, entries)
        for some, found, found_lse in parts(chosen.inputs, chosen.of_q(out), chosen.of_lse(lse)):
            exact, exact_lse = reference.attention(problem, *some, scale=scale)
            assert torch.equal(found_lse == -math.inf, exact_lse == -math.inf)
            # 1e-3, but no better than fp32 holds huge ones
            lse_error = (found_lse.double() - exact_lse).abs() / (1e-3 * exact_lse.abs()).clamp(1.0)
            assert (torch.where(exact_lse == -math.inf, 0.0, lse_error) <= 1e-3).all()
            plain, _ = reference.plain_attention(problem, *some, scale=scale)
            checked.append((found, plain, exact))
        found, plain, exact = (torch.cat(tensors) for tensors in zip(*checked, strict=True))
        error = (found.to(exact.dtype) - exact).abs().max().item()
        assert error <= reference.allowed_error(problem, plain, exact)  # false for NaN


def assert_whole(inputs: tuple[Any, ...], found: Gradients) -> None:
    """Gradients have the form of their tensors, and are 0 for rows of no sequence."""
    for x, gradient in zip(inputs[:3], found, strict=True):
        assert gradient.shape == x.shape and gradient.dtype == x.dtype and gradient.is_contiguous()
    if inputs[3:]:
        used_q, used_k = (int(offsets[-1]) for offsets in inputs[3:5])
        assert not found.dq[used_q:].any() and not found.dk[used_k:].any() and not found.dv[used_k:].any()


def assert_same_bits(*results: Iterable[Tensor]) -> None:
    """All results are the same, NaN included."""
    first, *others = map(tuple, results)
    for other in others:
        for one, x in zip(other, first, strict=True):
            assert torch.equal(one.view(torch.uint8), x.view(torch.uint8))
