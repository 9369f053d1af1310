"""The shell of every HTML page: one self-contained file, light or dark as its viewer is, without a script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).parent
SERIES = tuple(f"var(--s{i})" for i in range(10))  # colours that are told apart, also by the colour-blind

NUMBER = re.compile(r"[-+]?\d[\d.,]*( |$)|-?$")


@dataclass(frozen=True)
class Section:
    """A part of a page under a heading of its own."""

    heading: str
    html: str  # markup, as it is: whoever makes it escapes the texts in it
    note: str = ""  # text below the heading


def render(title: str, sections: Sequence[Section], lead: str = "") -> str:
    """A whole page; `lead` is text below the title. Headings, notes and the title are escaped."""
    template = _environment().get_template("page.html.j2")
    style = colours() + (HERE / "style.css").read_text(encoding="utf-8")
    named = [(_anchor(section.heading), section) for section in sections]
    return template.render(title=title, lead=lead, sections=named, style=style)


def colours() -> str:
    """CSS that defines the variables of all colours, light and dark; a drawing of its own needs it, too."""
    return (HERE / "colours.css").read_text(encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markup of a table of texts, escaped; columns of numbers, also with a unit, are set flush right."""
    texts = [[str(cell) for cell in row] for row in rows]
    is_text = [not all(map(NUMBER.match, column)) for column in zip(*texts, strict=True)] or [True] * len(
        head
    )
    top = _cells(head, is_text, 'th scope="col"')
    body = "\n".join(_cells(row, is_text, "td") for row in texts)
    return f'<div class="wide"><table><thead>{top}</thead><tbody>\n{body}\n</tbody></table></div>'


def _cells(texts: Iterable[str], is_text: Iterable[bool], tag: str) -> str:
    cells = (
        f"<{tag}{' class=text' if text else ''}>{escape(cell)}</{tag.split()[0]}>"
        for cell, text in zip(texts, is_text, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(HERE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
    )


def _anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
