"""The seed of a call's dropout mask."""

from __future__ import annotations

import torch
from torch import Tensor


def draw_seed(q: Tensor, dropout_p: float) -> Tensor:
    """A new seed from torch's generator of q's device, int64 [1]; where nothing is dropped 0, not drawn.

    Drawn by an op of torch itself, which torch.compile knows not to merge with another and, in a checkpoint,
    to repeat; the attention op is then a function of its arguments.
    """
    if not dropout_p:
        return q.new_zeros(1, dtype=torch.int64)
    return torch.randint(2**63 - 1, (1,), dtype=torch.int64, device=q.device)
