"""A model in torch of what v3's forward computes: its roundings, in its order, with sums in fp32.

What it leaves out: that Hopper's tensor cores add up 8-bit products with about 14 bits, and that exp2 is
approximate.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fagen.hw.dtypes import DTYPES
from fagen.ops.reference_quantize import spread
from fagen.plan.ir import E4M3_MAX, Plan

ROWS_AT_ONCE = 1024
WARP_ROWS = 16  # that move their references together
WARPGROUP_ROWS = 64  # that look for maxima together where a mask cuts a tile
LANE_COLUMNS = (8, 4, 2)  # a tile's columns by block, lane of a quad and neighbour: an mma accumulator
LOG2_E = math.log2(math.e)


def attention(plan: Plan, q: Tensor, k: Tensor, v: Tensor, *descales: Tensor) -> Tensor:
    """out of q, k and v as the op takes them, in problem.out_dtype.

    `descales` are those of q, k and v where they have 8 bits. Layouts bshd and bhsd, v not transposed, no
    softcap.
    """
    problem = plan.spec.problem
    if problem.layout == "bshd":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    ones = (torch.ones(1, device=q.device),) * 3
    scales = [
        spread(scale, x).expand(*x.shape[:3], 1) for scale, x in zip(descales or ones, (q, k, v), strict=True)
    ]
    out = torch.empty((*q.shape[:3], v.shape[3]), device=q.device)
    group = q.shape[1] // k.shape[1]
    for entry in range(q.shape[0]):
        for head in range(q.shape[1]):
            keys = entry, head // group
            k_of, v_of = k[keys].float(), v[keys].float()
            for first in range(0, q.shape[2], ROWS_AT_ONCE):
                rows = entry, head, slice(first, first + ROWS_AT_ONCE)
                last_key = first + k.shape[2] - q.shape[2]  # of the first row, were the mask causal
                walk = _Walk(plan, q[rows].float(), scales[0][rows], last_key)
                out[rows] = walk.out(k_of, v_of, scales[1][keys].mT, scales[2][keys].mT)
    out = out.to(getattr(torch, DTYPES[problem.dtype_out].torch))
    return out.transpose(1, 2) if problem.layout == "bshd" else out


class _Walk:
    """Some rows of q of one head on their way through its keys, from the last tile to the first."""

    def __init__(self, plan: Plan, q: Tensor, q_scale: Tensor, place: int):
        """`place` is the key that the first row stands at."""
        self.plan, self.tiling, self.problem = plan, plan.tiling, plan.spec.problem
        self.q, self.q_scale = q, q_scale * self.problem.head_dim**-0.5 * LOG2_E
        self.places = place + torch.arange(q.shape[0], device=q.device).unsqueeze(1)
        self.reference = q.new_full((q.shape[0], 1), -math.inf)  # in powers of two
        self.sum = torch.zeros_like(self.reference)

    def out(self, k: Tensor, v: Tensor, k_scale: Tensor, v_scale: Tensor) -> Tensor:
        """[rows, head_dim_v], not yet rounded; k and v [keys, head_dim], their scales [1, keys]."""
        largest = v_scale.max() if v_scale.numel() else v.new_ones(())
        out = self.q.new_zeros(self.q.shape[0], v.shape[1])
        for first in reversed(range(0, k.shape[0], self.tiling.kv)):
            keys = slice(first, first + self.tiling.kv)
            scores = self.q @ k[keys].mT * (self.q_scale * k_scale[:, keys])
            seen = self._seen(first, scores.shape[1])
            share = v_scale[:, keys] / largest
            factor = self._move(scores.masked_fill(~seen, -math.inf), ~seen, share)
            p = self._p(scores.masked_fill(~seen, -math.inf))
            self.sum = self.sum * factor + p.sum(1, keepdim=True)
            out = out * factor + self._rounded(p * share) @ v[keys]
        return torch.where(self.sum > 0, out / self.sum * largest, 0.0)

    def _seen(self, first: int, count: int) -> Tensor:
        left, right = self.problem.window
        keys = first + torch.arange(count, device=self.q.device)
        seen = torch.ones(len(self.places), count, dtype=torch.bool, device=self.q.device)
        if left is not None:
            seen &= keys >= self.places - left
        if right is not None:
            seen &= keys <= self.places + right
        return seen

    def _p(self, scores: Tensor) -> Tensor:
        return torch.where(
            scores == -math.inf, 0.0, torch.exp2(scores - self.reference + self.tiling.p_offset)
        )

    def _move(self, scores: Tensor, hidden: Tensor, share: Tensor) -> Tensor:
        """Moves the references where the kernel does, and says by what to scale the sums so far."""
        before = self.reference
        highest = torch.maximum(before, scores.amax(1, keepdim=True))
        if self.tiling.p_limit is not None:
            fits = _lane_sums(self._p(scores) * share) <= self.tiling.p_limit  # NaN and infinity do not
            moves = _any(~fits, WARP_ROWS) | _any(hidden.any(1, keepdim=True), WARPGROUP_ROWS)
        elif self.tiling.lazy_rescale is not None:
            moves = _any(highest - before > self.tiling.lazy_rescale, WARP_ROWS)
        else:
            moves = torch.ones_like(before, dtype=torch.bool)
        self.reference = torch.where(moves, highest, before)
        return torch.where(self.reference == before, 1.0, torch.exp2(before - self.reference))

    def _rounded(self, p: Tensor) -> Tensor:
        if self.problem.is_fp8:
            return p.clamp(max=E4M3_MAX).to(torch.float8_e4m3fn).float()
        return p.to(getattr(torch, DTYPES[self.problem.dtype].torch)).float()


def _lane_sums(p: Tensor) -> Tensor:
    """The largest sum over what one lane has of each row: [rows, 1]."""
    block, lanes, neighbours = LANE_COLUMNS
    missing = -p.shape[1] % block
    p = torch.nn.functional.pad(p, (0, missing))
    return p.unflatten(1, (-1, lanes, neighbours)).sum((1, 3)).amax(1, keepdim=True)


def _any(rows: Tensor, together: int) -> Tensor:
    """[rows, 1]: whether any of the `together` neighbouring rows has it."""
    padded = torch.nn.functional.pad(rows.squeeze(1), (0, -len(rows) % together))
    groups = padded.unflatten(0, (-1, together)).any(1)
    return groups.repeat_interleave(together)[: len(rows)].unsqueeze(1)
