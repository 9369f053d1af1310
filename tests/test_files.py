from __future__ import annotations

from pathlib import Path

import pytest

from fagen.files import write_text


def test_a_file_is_written_as_it_is(tmp_path: Path) -> None:
    write_text(tmp_path / "é", "Θ\n")
    assert (tmp_path / "é").read_bytes() == "Θ\n".encode()


@pytest.mark.parametrize("place", ["/dev/full", "/proc/none/file"])
def test_what_cannot_be_written_is_named(place: str) -> None:
    with pytest.raises(OSError, match=place):
        write_text(Path(place), "text")
