"""Kernels with one change each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fagen.emit.source import Source

from . import files, operators


@dataclass(frozen=True)
class Site:
    """A change and its place, named so that it stays the same when lines move."""

    file: str  # "fagen/pipe/ring.cuh", or files.KERNEL for the template's own text
    line: str  # the line of code where it starts
    nth: int  # of the same changes of such lines in the file
    what: str

    def __str__(self) -> str:
        times = f" ({self.nth + 1})" if self.nth else ""
        return f"{self.file}: `{self.line}`{times}: {self.what}"


def mutants(source: Source) -> Iterator[tuple[Site, Source]]:
    """Every mutant of a printed kernel."""
    whole = files.split(source.text)
    for file, text in whole.items():
        seen: Counter[Site] = Counter()
        for edit in operators.edits(text):
            line = text[text.rfind("\n", 0, edit.at) + 1 :].partition("\n")[0].strip()
            site = Site(file, line, 0, edit.what)
            seen[site] += 1
            changed = whole | {file: text[: edit.start] + edit.by + text[edit.end :]}
            yield replace(site, nth=seen[site] - 1), replace(source, text=files.join(changed))
