"""What the GPU tests of 8-bit attention share: `Cases` of ops that take descales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gpu_cases import PLANNED, Cases
from torch import Tensor

import fagen
from fagen.bench.expected import expected
from fagen.bench.trial import FP8_LSE_ALLOWED
from fagen.ops.checks import out_dtype, torch_dtype
from fagen.ops.op import AttentionOp
from fagen.paths import SPECS

SHIPPED = {64: "h200_fp8_d64", 128: "h200_fp8", 256: "h200_fp8_d256"}
# In the emulator: tiles so small that there are many of them at small sizes.
SMALL = {
    "schedule.tile": {"q": 64, "kv": 32},
    "schedule.roles.math.warps": 4,
    "schedule.stages.kv": 2,
}
# Of a row of out, as a share of its L2 norm: e4m3 holds P within 2^-4, seen are up to 5e-2.
ROW_ALLOWED = 0.12

Inputs = tuple[Any, ...]


class Fp8Cases(Cases):
    """Family v3 with 8-bit q, k and v on one device; reached through the fixture `fp8_cases`.

    Inputs are all that the op takes, the descales last.
    """

    def __init__(self, emulated: bool):
        super().__init__("v3", emulated)

    def op(
        self, *, name: str | None = None, schedule: Mapping[str, Any] | None = None, **problem: Any
    ) -> AttentionOp:
        """The shipped spec (e4m3, out bf16, bshd, causal) with keys of `problem` changed."""
        overrides: dict[str, Any] = {f"problem.{key}": value for key, value in problem.items()}
        head_dim = problem.get("head_dim", 128)
        if self.small:
            overrides |= SMALL
        elif schedule or problem.get("head_dim_v", head_dim) != head_dim:
            overrides |= PLANNED
        overrides |= {f"schedule.{key}": value for key, value in (schedule or {}).items()}
        if name is not None:
            overrides["name"] = name
        spec = SPECS / f"{SHIPPED[head_dim]}.yaml"
        return fagen.load(spec, overrides, device="emu" if self.small else None)

    def packed_fp8(
        self, op: AttentionOp, lengths_q: Sequence[int], lengths_k: Sequence[int], unused: int = 0
    ) -> Inputs:
        """Packed sequences of these lengths, 4 heads to 2, with `unused` rows of NaN after the last."""
        problem, generator = op.spec.problem, torch.Generator(self.device).manual_seed(0)

        def tensor(lengths: Sequence[int], heads: int, columns: int) -> Tensor:
            sizes = (sum(lengths) + unused, heads, columns)
            x = torch.randn(sizes, generator=generator, device=self.device)
            x[sum(lengths) :] = float("nan")
            return x.to(torch_dtype(problem))

        def descale() -> Tensor:
            return torch.rand((len(lengths_q), 2), generator=generator, device=self.device) + 0.5

        return (
            tensor(lengths_q, 4, problem.head_dim),
            tensor(lengths_k, 2, problem.head_dim),
            tensor(lengths_k, 2, problem.dim_v),
            self.offsets(lengths_q),
            self.offsets(lengths_k),
            max(lengths_q),
            max(lengths_k),
            *(descale() for _ in "qkv"),
        )

    def assert_fp8(self, op: AttentionOp, *inputs: Any) -> Tensor:
        """out, which is within tolerance of what the tensors stand for, as a whole and in every row."""
        problem = op.spec.problem
        out, lse = self.run(op, *inputs)
        assert out.shape == (*inputs[0].shape[:-1], problem.dim_v) and out.is_contiguous()
        assert out.dtype == out_dtype(problem) and lse.dtype == torch.float32
        exact = expected(problem, inputs)
        assert exact.error(out) <= exact.allowed  # false for NaN
        norms = exact.out.norm(dim=-1)
        errors = (out.double() - exact.out).norm(dim=-1)
        assert (errors <= ROW_ALLOWED * norms).all(), (errors / norms).nan_to_num(0).max()
        blind = exact.lse.isneginf()
        assert torch.equal(lse.isneginf(), blind)
        lse_errors = (lse.double() - exact.lse).abs()[~blind]
        # Scores are sums of about 14 bits.
        assert (lse_errors <= FP8_LSE_ALLOWED * exact.lse[~blind].abs().clamp(min=1) / 4).all()
        return out


def changed(inputs: Inputs, which: int, descale: Tensor) -> Inputs:
    """The inputs with the descale at -3 (q), -2 (k) or -1 (v) replaced."""
    replaced = list(inputs)
    replaced[which] = descale
    return tuple(replaced)
