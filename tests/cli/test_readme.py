"""The README's example, word for word."""

from __future__ import annotations

import re
import shlex
import shutil

import pytest

from fagen.paths import SPECS

README = SPECS.parent / "README.md"


def block(language: str) -> str:
    """The README's code blocks in that language, one after the other."""
    return "".join(re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL))


@pytest.mark.skipif(not README.exists(), reason="an installed fagen has no README")
def test_every_command_does_what_it_says(fagen, tmp_path, monkeypatch):
    shutil.copytree(SPECS, tmp_path / "specs")
    (tmp_path / "specs" / "mine.yaml").write_text(block("yaml"))
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(line, comments=True)[2:] for line in block("console").splitlines()]
    for words in commands:
        result = fagen(*words)
        assert result.exit_code == 0, (words, result.output)
    assert {words[0] for words in commands} == {"plan", "build", "run"}
    assert (tmp_path / "generated" / "mine" / "forward.cu").exists() and (tmp_path / "mine.json").exists()
    assert "from generated.mine import attention" in block("python")
    assert block("yaml").splitlines()[0].endswith("$schema=fagen.schema.json")  # as tests/spec asks of specs/
