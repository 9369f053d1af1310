"""What a call needs besides addresses, kept for the next call like it."""

from __future__ import annotations

from typing import TypeVar

MAX_CALLS = 4096

_Call = TypeVar("_Call")


class Remembered(dict[tuple, _Call]):
    """Prepared calls by what they depend on: shapes, strides, numbers. Starts over when full.

    A decode loop has a new one at every step.
    """

    def __setitem__(self, key: tuple, call: _Call) -> None:
        if len(self) >= MAX_CALLS:
            self.clear()
        super().__setitem__(key, call)
