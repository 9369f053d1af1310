"""A kernel's own text: what was printed, and fagen's headers that it includes above the ptx layer."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fagen.compile import headers

LAYER = "fagen/ptx/"  # the instructions themselves: what the emulator stands in for

_INCLUDE = re.compile(r'^#include "(fagen/.*)"$', re.MULTILINE)
_ONCE = re.compile(r"^#pragma once$", re.MULTILINE)


def split(text: str, kernel: str) -> dict[str, str]:
    """The files of a printed kernel by name, itself as `kernel`, without the ptx layer and all below it."""
    own = dict(headers.closure(text).own)
    layer = "".join(f'#include "{name}"\n' for name in own if name.startswith(LAYER))
    below = dict(headers.closure(layer).own)
    return {kernel: text} | {name: code.decode() for name, code in own.items() if name not in below}


def join(files: Mapping[str, str], kernel: str) -> str:
    """One text with every header where it was first included; what is not among `files` stays included."""
    seen: set[str] = set()

    def include(directive: re.Match[str]) -> str:
        name = directive[1]
        if name not in files:
            return directive[0]
        if name in seen:
            return ""
        seen.add(name)
        return _INCLUDE.sub(include, _ONCE.sub("", files[name]))

    return _INCLUDE.sub(include, files[kernel])
