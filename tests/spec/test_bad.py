"""Specs that must be refused, each with the messages that it must get beside it: all of them, and no others.

A line `# expect: MESSAGE` of a file is one message, with paths relative to this directory's bad/.
"""

from pathlib import Path

import pytest

from fagen.errors import SpecError
from fagen.spec.load import load_spec

BAD = Path(__file__).parent / "bad"
FILES = sorted(BAD.glob("*.yaml"))
EXPECT = "# expect: "


def expected(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(EXPECT) for line in lines if line.startswith(EXPECT)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_bad_spec_gets_its_messages(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)
    assert expected(path), "a bad spec says what it expects"
    with pytest.raises(SpecError) as caught:
        load_spec(path.name)
    assert str(caught.value).splitlines() == expected(path)
