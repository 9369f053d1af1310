from __future__ import annotations

import pytest


def row(output: str) -> dict[str, str]:
    """The one kernel's line of the resource table."""
    heading, line = (text for text in output.splitlines() if text.startswith(("spec ", "a100_fa2 ")))
    names = heading.replace(" B", "_B").split()
    return dict(zip(names, line.split(), strict=True))


def test_prints_what_the_kernel_takes_and_where_it_is(fagen, a100, tmp_path):
    result = fagen("build", a100, "--out", tmp_path / "generated")
    assert result.exit_code == 0
    found = row(result.stdout)
    assert found["arch"] == "sm_80"
    assert 0 < int(found["registers"]) <= 255
    assert (found["spill_B"], found["stack_B"], found["cached"]) == ("0", "0", "no")
    assert int(found["smem_B"]) > 0
    assert (tmp_path / "generated" / "a100_fa2" / "kernel.cu").is_file()
    assert str(tmp_path / "cache") in result.stdout.replace("\n", "")


def test_a_second_build_comes_from_the_cache(fagen, a100, tmp_path):
    fagen("build", a100, "--out", tmp_path)
    assert row(fagen("build", a100, "--out", tmp_path).stdout)["cached"] == "yes"


def test_arch_retargets(fagen, a100, tmp_path):
    result = fagen("build", a100, "--arch", "sm_90a", "--out", tmp_path)
    assert row(result.stdout)["arch"] == "sm_90a"


def test_an_arch_that_does_not_exist_is_refused(fagen, a100, tmp_path):
    result = fagen("build", a100, "--arch", "sm_12", "--out", tmp_path)
    assert result.exit_code == 1
    assert "sm_12" in result.stderr
    assert "sm_90a" in result.stderr


@pytest.mark.parametrize("tile", ["{q: 512, kv: 256}"])
def test_a_tile_that_does_not_fit_is_refused_and_nothing_is_written(fagen, a100, tmp_path, tile):
    result = fagen("build", a100, "--set", f"schedule.tile={tile}", "--out", tmp_path / "generated")
    assert result.exit_code == 1
    assert "bytes" in result.stderr
    assert not (tmp_path / "generated").exists()
