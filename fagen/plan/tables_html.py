"""The sections of `explain.py` as HTML tables."""

from __future__ import annotations

from html import escape
from typing import Any

from fagen.plan.explain import Code, Section, cell_text, is_numeric


def render(section: Section) -> str:
    """A table under a heading of the third level, its notes below."""
    is_text = [not is_numeric(section, column) for column in range(len(section.columns))]
    head = "" if section.facts else f"<thead>{_row('th', section.columns, is_text)}</thead>"
    body = "\n".join(_row("td", row, is_text) for row in section.rows)
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in section.notes)
    return (
        f"<h3>{escape(section.title)}</h3>\n"
        f'<div class="wide"><table>{head}<tbody>\n{body}\n</tbody></table></div>{notes}'
    )


def _row(tag: str, cells: tuple[Any, ...], is_text: list[bool]) -> str:
    return f"<tr>{''.join(_cell(tag, *cell) for cell in zip(cells, is_text, strict=True))}</tr>"


def _cell(tag: str, value: Any, is_text: bool) -> str:
    words = escape(cell_text(value))
    inside = f"<code>{words}</code>" if isinstance(value, Code) else words
    return f"<{tag}{' class=text' if is_text else ''}>{inside}</{tag}>"
