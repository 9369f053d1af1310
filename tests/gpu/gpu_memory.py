"""Memory for ops that is full of NaN, and that notices when they write beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

GUARD = {"cuda": 2**20, "cpu": 2**12}  # bytes on either side of a tensor; the emulator checks addresses, too
POISON = 0xFF  # as a byte pattern a NaN in every element type


class Memory:
    """Tensors that hold NaN, between guards that must keep their bytes."""

    def __init__(self) -> None:
        self._buffers: list[tuple[Tensor, int, int]] = []

    def new_empty(self, like: Tensor, sizes: Sequence[int] | int, dtype: torch.dtype | None = None) -> Tensor:
        """In place of Tensor.new_empty."""
        sizes = (sizes,) if isinstance(sizes, int) else sizes
        dtype = dtype or like.dtype
        first = GUARD[like.device.type]
        end = first + math.prod(sizes) * dtype.itemsize
        buffer = torch.full((end + first,), POISON, dtype=torch.uint8, device=like.device)
        self._buffers.append((buffer, first, end))
        return buffer[first:end].view(dtype).view(sizes)

    def assert_holds(self, *results: Tensor) -> None:
        """These came from here, and no guard has changed."""
        storages = {buffer.untyped_storage().data_ptr() for buffer, _, _ in self._buffers}
        assert all(x.untyped_storage().data_ptr() in storages for x in results)
        for buffer, first, end in self._buffers:
            assert torch.all(buffer[:first] == POISON) and torch.all(buffer[end:] == POISON)


@contextmanager
def guarded_memory() -> Iterator[Memory]:
    """Whatever ops take from torch, outputs and working memory, comes from a `Memory`."""
    memory = Memory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "new_empty", lambda *sizes, **options: memory.new_empty(*sizes, **options))
        yield memory
