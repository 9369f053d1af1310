"""How long tuning may take, and its stages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Time until `end`, by `clock`, in seconds."""

    end: float = math.inf
    clock: Callable[[], float] = time.monotonic

    @property
    def is_spent(self) -> bool:
        """Whether the time is over."""
        return self.clock() >= self.end

    def part(self, share: float) -> Budget:
        """The first `share` of what is left."""
        now = self.clock()
        return Budget(now + share * max(0.0, self.end - now), self.clock)


def starting_now(seconds: float | None) -> Budget:
    """That many seconds from now on; None: as long as it takes."""
    return Budget() if seconds is None else Budget(time.monotonic() + seconds)
