"""Memory that a call's kernels hand on to each other, or keep sums in."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

DTYPES = {"o_sum": torch.float32, "dq_sum": torch.float32, "row_stats": torch.float32, "turns": torch.int32}


def allocate(sizes: Mapping[str, int], like: Tensor, who: str) -> dict[str, Tensor]:
    """Uninitialised memory of these sizes in bytes, by name, on the device of `like`; for the pass `who`.

    Raises torch.OutOfMemoryError, with the bytes wanted, where there is no room.
    """
    try:
        return {
            name: like.new_empty(size // DTYPES[name].itemsize, dtype=DTYPES[name])
            for name, size in sizes.items()
        }
    except torch.OutOfMemoryError as error:
        each = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise torch.OutOfMemoryError(
            f"{who} wants {sum(sizes.values()):,} bytes for its workspaces on {like.device} ({each}): {error}"
        ) from error
