"""Whether values that lie on the GPU are looked at before a call: offsets of sequences, descales."""

from __future__ import annotations

import os

CHECK_METADATA = "FAGEN_CHECK_METADATA"


def is_checked() -> bool:
    """As the environment has it at this moment."""
    return os.environ.get(CHECK_METADATA) == "1"
