"""Mutants that may survive, each with the reason why it is harmless. Others may not, and these must."""

from __future__ import annotations

ACCEPTED: dict[str, str] = {}  # by str(Site)
