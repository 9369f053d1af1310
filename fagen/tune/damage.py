"""What a file may be that this version of fagen did not write: torn, edited, of another version."""

from __future__ import annotations

from fagen.errors import FagenError

# What reading JSON and making objects of it raises then, whatever it holds.
DAMAGE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,  # an integer that no float can be
    RecursionError,  # lists in lists in lists
    FagenError,
)
