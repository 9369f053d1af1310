"""Work on one K/V head of one batch entry at a time, for what makes a matrix of all its scores."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fagen.ops.layout import BATCH_ROW_HEAD
from fagen.spec.model import Problem


def by_head(
    function: Callable[[Tensor, Tensor, Tensor], Tensor], problem: Problem, q: Tensor, k: Tensor, v: Tensor
) -> Tensor:
    """`function` of each K/V head with its query heads, of each batch entry, put together again.

    q, k and v are in the problem's layout, bshd or bhsd, as is what `function` takes and gives.
    """
    _, _, head = BATCH_ROW_HEAD[problem.layout]
    group = q.shape[head] // k.shape[head]
    entries = []
    for one in zip(q.split(1), k.split(1), v.split(1), strict=True):
        heads = zip(one[0].split(group, head), one[1].split(1, head), one[2].split(1, head), strict=True)
        entries.append(torch.cat([function(*qkv) for qkv in heads], head))
    return torch.cat(entries)
