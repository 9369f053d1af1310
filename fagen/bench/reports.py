"""The files that a bench's findings are written to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fagen.bench import table
from fagen.bench.compare import Result
from fagen.bench.document import Document


@dataclass(frozen=True)
class Files:
    """Where to write what; None: nowhere."""

    json: Path | None = None
    markdown: Path | None = None
    html: Path | None = None

    def check(self) -> None:
        """Raises FagenError where what a report needs is not installed."""
        if self.html:
            from fagen.bench.html.plots import check_installed  # matplotlib, which is an extra

            check_installed()

    def write(self, document: Document, results: Sequence[Result]) -> None:
        """All reports of one run; the JSON document, from which the others can be made again, first."""
        if self.json:
            self.json.write_text(json.dumps(document, indent=2) + "\n")
        if self.markdown:
            self.markdown.write_text(table.markdown(results, document["machine"], document["peers"]))
        if self.html:
            from fagen.bench.html.report import report

            self.html.write_text(report(document), encoding="utf-8")
