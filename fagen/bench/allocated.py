"""Device memory that torch's allocator has handed out, and the most that it had at a time."""

from __future__ import annotations

from typing import Protocol

import torch


class Allocator(Protocol):
    """Bytes allocated on the device."""

    def allocated(self) -> int:
        """Now, once all that was asked for is done."""
        ...

    def reset_peak(self) -> None:
        """Begin to look for the peak."""
        ...

    def peak(self) -> int:
        """The most since then."""
        ...

    def release(self) -> None:
        """Give back what nobody holds."""
        ...


class CudaAllocator:
    """torch's, on the current device; what libraries take past it does not count."""

    def allocated(self) -> int:
        """Bytes of live tensors."""
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    def reset_peak(self) -> None:
        """Begin with what is allocated now."""
        torch.cuda.reset_peak_memory_stats()

    def peak(self) -> int:
        """The most bytes of live tensors since then."""
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()

    def release(self) -> None:
        """Cached blocks, so that the next contender finds memory in one piece."""
        torch.cuda.empty_cache()
