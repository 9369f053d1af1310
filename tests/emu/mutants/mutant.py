"""Kernels with one change each, many in one library: which one is chosen when it runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from fagen.emit.source import Source

from . import files, operators
from .operators import Change, Edit

CHOSEN = "fagen_mutant"  # the variable that holds the number of the chosen one; 0: the kernel as it is
_HEAD = f'extern "C" {{ __attribute__((visibility("default"))) int {CHOSEN} = 0; }}\n'


_STATEMENT = -(2**30)  # comes before all expressions that start at the same place


@dataclass(frozen=True)
class Site:
    """A change and its place, named so that it stays the same when lines move."""

    file: str  # "fagen/pipe/ring.cuh", or "v3/forward.cu" for the template's own text
    line: str  # the line of code where it starts
    nth: int  # of the same changes of such lines in the file
    what: str

    def __str__(self) -> str:
        times = f" ({self.nth + 1})" if self.nth else ""
        return f"{self.file}: `{self.line}`{times}: {self.what}"


class Mutant(NamedTuple):
    """A kernel that becomes this mutant where CHOSEN is `number`."""

    source: Source
    number: int


def mutants(source: Source, template: str) -> Iterator[tuple[Site, Mutant]]:
    """Every mutant of a kernel that the template printed."""
    kernel = template.removesuffix(".j2")
    whole = files.split(source.text, kernel)
    sites = dict(_sites(whole))
    # A constant cannot be chosen when the kernel runs: such a mutant has a library of its own.
    alone = {site: edit for site, edit in sites.items() if any(c.kind == "constant" for c in edit.changes)}
    for group in ({s: e for s, e in sites.items() if s not in alone}, *({s: e} for s, e in alone.items())):
        numbers = {site: number for number, site in enumerate(group, 1)}
        changes = defaultdict(list)
        for site, edit in group.items():
            changes[site.file] += [(numbers[site], change) for change in edit.changes]
        mutated = {file: changed(whole[file], changes[file]) for file in changes}
        text = _HEAD + files.join(whole | mutated, kernel)
        yield from ((site, Mutant(replace(source, text=text), number)) for site, number in numbers.items())


def _sites(whole: dict[str, str]) -> Iterator[tuple[Site, Edit]]:
    for file, text in whole.items():
        seen: Counter[Site] = Counter()
        for edit in operators.edits(text):
            line = text[text.rfind("\n", 0, edit.at) + 1 :].partition("\n")[0].strip()
            site = Site(file, line, 0, edit.what)
            seen[site] += 1
            yield replace(site, nth=seen[site] - 1), edit


def changed(text: str, changes: Iterable[tuple[int, Change]]) -> str:
    """`text` with all changes, each made where CHOSEN is its number; they are nested or apart."""
    before, after, dropped = defaultdict(list), defaultdict(list), []
    for number, (kind, start, end, by) in changes:
        chosen = f"{CHOSEN} == {number}"
        if kind == "constant":
            dropped.append((start, end))
            before[start].append((0, by))
        elif kind == "statement" and by:
            before[start].append((_STATEMENT, f"if ({chosen}) {{\n{by}}}\n"))
        elif kind == "statement":
            before[start].append((_STATEMENT + 1, f"if (!({chosen}))\n"))
        else:
            void = "" if kind == "answer" else "void"
            before[start].append((start - end, f"({chosen} ? {void}({by}) : {void}("))
            after[end].append("))")
    # Ends come before beginnings; statements before what is in them, outer expressions before inner ones.
    pieces, at = [], 0
    for place in sorted({0, len(text), *before, *after, *(i for span in dropped for i in span)}):
        if not any(start <= at < end for start, end in dropped):
            pieces.append(text[at:place])
        pieces += after[place]
        pieces += [by for _, by in sorted(before[place])]
        at = place
    return "".join(pieces)
