"""`fagen schema`: the JSON schema of a spec file, for editors."""

from __future__ import annotations

import typer

from fagen.spec.schema import json_text


def schema_command() -> None:
    """Print the JSON schema of a spec file."""
    typer.echo(json_text(), nl=False)
