"""The files that a bench's findings are written to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fagen.bench import table
from fagen.bench.compare import Result
from fagen.bench.document import Document
from fagen.errors import ArgumentError
from fagen.files import write_text


@dataclass(frozen=True)
class Files:
    """Where to write what; None: nowhere."""

    json: Path | None = None
    markdown: Path | None = None
    html: Path | None = None

    def check(self) -> None:
        """Raises FagenError where two reports have one file, or what a report needs is not installed."""
        files = [file.resolve() for file in (self.json, self.markdown, self.html) if file]
        if twice := [file for file in files if files.count(file) > 1]:
            raise ArgumentError(f"{twice[0]}: is given for several reports; allowed: a file for each")
        if self.html:
            from fagen.bench.html.plots import check_installed  # matplotlib, which is an extra

            check_installed()

    def write(self, document: Document, results: Sequence[Result]) -> None:
        """All reports of one run; the JSON document, from which the others can be made again, first."""
        if self.json:
            write_text(self.json, json.dumps(document, indent=2) + "\n")
        if self.markdown:
            write_text(self.markdown, table.markdown(results, document["machine"], document["peers"]))
        if self.html:
            from fagen.bench.html.report import report

            write_text(self.html, report(document))
