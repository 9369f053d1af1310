"""The Jinja environment: strict about undefined names, plain about white space."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fagen.paths import TEMPLATES


@cache
def environment() -> Environment:
    """The one environment that prints every kernel."""
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the output is C++, not HTML
    )
