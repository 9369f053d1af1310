"""Attention a few rows of Q at a time, so that the reference of long sequences fits into memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from fagen.ops.layout import BATCH_ROW_HEAD
from fagen.spec.model import Problem, Window


@dataclass(frozen=True)
class Rows:
    """Some queries and the keys that they may see, as a problem of their own."""

    problem: Problem  # its mask is that of these rows
    queries: slice
    keys: slice


def in_rows(problem: Problem, q: Tensor, k: Tensor, scores: int) -> Iterator[Rows]:
    """All queries of batched q and k, at least one at a time, one K/V head's with at most `scores` scores."""
    _, row, head = BATCH_ROW_HEAD[problem.layout]
    seqlen_q, seqlen_k = q.shape[row], k.shape[row]
    group = q.shape[head] // k.shape[head]
    step = max(1, scores // max(1, group * seqlen_k))
    for first in range(0, seqlen_q, step):
        yield _rows(problem, first, min(first + step, seqlen_q), seqlen_q, seqlen_k)


def _rows(problem: Problem, first: int, end: int, seqlen_q: int, seqlen_k: int) -> Rows:
    """Queries `first` to `end`, with keys up to the last that one of them sees, and at least one."""
    left, right = problem.window
    seen, mask = seqlen_k, problem.mask
    if (left, right) != (None, None):
        place = end + seqlen_k - seqlen_q  # one past where the last query stands
        seen = seqlen_k if right is None else max(1, min(seqlen_k, place + right))
        if moved := seen - place:  # a mask is aligned with the last key, which now is another one
            sides = (None if left is None else left + moved, None if right is None else right - moved)
            mask = Window.model_construct(window=sides)  # negative where no key is seen
    return Rows(problem.model_copy(update={"mask": mask}), slice(first, end), slice(0, seen))
