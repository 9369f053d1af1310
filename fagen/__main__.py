"""`python -m fagen` is the `fagen` command."""

from fagen.cli.main import app

app(prog_name="fagen")
