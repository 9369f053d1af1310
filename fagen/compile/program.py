"""Several kernels as one NVRTC program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fagen.emit.source import Source


def merged(sources: Sequence[Source]) -> Source:
    """The kernels of `sources`, of one spec and arch, in one text: each in a namespace, with its own lines.

    One source is left as it is.
    """
    first, *others = sources
    if not others:
        return first
    includes = {line: None for source in sources for line in source.text.splitlines() if _is_include(line)}
    return replace(first, text="\n".join([*includes, *map(_in_namespace, sources)]) + "\n")


def _in_namespace(source: Source) -> str:
    body = "\n".join("" if _is_include(line) else line for line in source.text.splitlines())
    place = f'#line 1 "{source.name}/{source.file}"'
    return f"namespace {source.symbol}_own {{\n{place}\n{body}\n}}"


def _is_include(line: str) -> bool:
    return line.startswith("#include")
