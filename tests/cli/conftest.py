from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result  # pyright: ignore[reportPrivateImportUsage]

from fagen.cli.main import app
from fagen.paths import SPECS

Run = Callable[..., Result]


@pytest.fixture
def fagen() -> Run:
    """Runs the command with the given words; a crash is a failure of the test."""

    def run(*words: object) -> Result:
        result = CliRunner().invoke(app, [str(word) for word in words])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def a100() -> Path:
    return SPECS / "a100_fa2.yaml"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A spec with a misspelled key on line 5."""
    path = tmp_path / "broken.yaml"
    path.write_text(
        "name: broken\nfamily: v2\narch: sm_80\nproblem:\n  head_dom: 64\n  head_dim: 64\n  dtype: bf16\n"
    )
    return path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAGEN_CACHE_DIR", str(tmp_path / "cache"))
