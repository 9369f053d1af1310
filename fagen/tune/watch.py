"""What tuning tells about its progress, to whoever wants to know."""

from __future__ import annotations

from typing import Protocol


class Watch(Protocol):
    """Is told of stages and steps as they happen."""

    def stage(self, name: str, steps: int) -> None:
        """A stage begins, of so many steps: "building", 12."""
        ...

    def more(self, steps: int) -> None:
        """So many steps have come up beside those that the stage began with."""
        ...

    def step(self, what: str, steps: int = 1) -> None:
        """So many steps of it are done: whatever `what` names."""
        ...

    def note(self, text: str) -> None:
        """Something to be read later, too: a variant that failed."""
        ...


class Silent:
    """Watches nothing."""

    def stage(self, name: str, steps: int) -> None:
        """Nothing."""

    def more(self, steps: int) -> None:
        """Nothing."""

    def step(self, what: str, steps: int = 1) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""
