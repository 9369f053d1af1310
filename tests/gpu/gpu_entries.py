"""Some sequences of a batch by themselves: a reference of all would take too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from fagen.ops.reference_gradients import SCORES_AT_ONCE, Gradients


class Entries:
    """Some sequences of a batch, or all of it, by themselves."""

    def __init__(self, inputs: tuple[Any, ...], entries: Iterable[int] | None):
        self.inputs = inputs
        self._rows: tuple[Tensor, Tensor] | None = None  # along the first axis, of q and of k and v
        if entries is None:
            return
        (q, k, v, *packing), chosen = inputs, list(entries)
        if packing:
            lengths = [offsets.diff()[chosen] for offsets in packing[:2]]
            starts = [offsets[chosen] for offsets in packing[:2]]
            rows = [
                torch.cat([torch.arange(s, s + n) for s, n in zip(*(x.tolist() for x in at), strict=True)])
                for at in zip(starts, lengths, strict=True)
            ]
            packing = [torch.cat([x.new_zeros(1), x.cumsum(0, dtype=x.dtype)]) for x in lengths]
        else:
            rows = [torch.tensor(chosen)] * 2
        of_q, of_k = self._rows = rows[0].to(q.device), rows[1].to(q.device)
        self.inputs = (q[of_q], k[of_k], v[of_k], *packing)

    def of_q(self, x: Tensor) -> Tensor:
        """Of a tensor with the rows of q."""
        return x if self._rows is None else x[self._rows[0]]

    def of_lse(self, x: Tensor) -> Tensor:
        """Of a tensor with the sizes of LSE."""
        if self._rows is None:
            return x
        return x.index_select(-1 if self.inputs[3:] else 0, self._rows[0])

    def gradients(self, found: Gradients) -> Gradients:
        """Of the gradients of all."""
        if self._rows is None:
            return found
        of_q, of_k = self._rows
        return Gradients(found.dq[of_q], found.dk[of_k], found.dv[of_k])


def parts(
    inputs: tuple[Any, ...], out: Tensor, lse: Tensor
) -> Iterator[tuple[tuple[Tensor, ...], Tensor, Tensor]]:
    """What the reference takes, with out and LSE, not too much at a time."""
    q, k, v, *packing = inputs
    if packing:
        yield inputs[:5], out, lse
        return
    scores = q[0, ..., 0].numel() * max(k.shape[1:3])
    at_once = max(1, SCORES_AT_ONCE // max(1, scores))
    for first in range(0, len(q), at_once):
        some = slice(first, first + at_once)
        yield (q[some], k[some], v[some]), out[some], lse[some]
