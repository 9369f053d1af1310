"""What a bench can time of attention."""

from __future__ import annotations

MODES = {
    "fwd": ("forward",),
    "bwd": ("backward",),
    "fwd+bwd": ("forward", "backward"),
}  # and the passes of each
