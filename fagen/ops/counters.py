"""The counters that a kernel hands its work items out by: zeros when it starts, and again when it ends."""

from __future__ import annotations

import torch
from torch import Tensor

_of_stream: dict[tuple[int, int], Tensor] = {}  # by device and stream


def counters_of(q: Tensor, stream: int) -> Tensor:
    """Two zeros, int32, for a launch on the current stream of q's device, which has handle `stream`.

    Launches on one stream run one after the other and share theirs. A graph may be replayed on any stream, so
    a launch that is captured gets its own, zeroed in the graph; and so does every launch in the emulator.
    """
    if q.device.type == "cpu" or torch._C._cuda_isCurrentStreamCapturing():
        return q.new_zeros(2, dtype=torch.int32)
    key = q.device.index, stream
    if key not in _of_stream:
        _of_stream[key] = q.new_zeros(2, dtype=torch.int32)
    return _of_stream[key]
