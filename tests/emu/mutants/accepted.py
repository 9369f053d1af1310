"""Mutants that survive, each with the reason why it is harmless; all others must be found out, these not."""

from __future__ import annotations

ACCEPTED: dict[str, str] = {}  # by str(Site)
