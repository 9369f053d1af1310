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
    seconds: float = math.inf  # all of it, when it began

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self.end - self.clock())

    @property
    def is_spent(self) -> bool:
        """Whether the time is over."""
        return not self.left

    def part(self, share: float) -> Budget:
        """The first `share` of what is left."""
        seconds = share * self.left
        return Budget(self.clock() + seconds, self.clock, seconds)


ENDLESS = Budget()


def starting_now(seconds: float | None) -> Budget:
    """That many seconds from now on; None: as long as it takes."""
    return ENDLESS if seconds is None else Budget(time.monotonic() + seconds, seconds=seconds)
