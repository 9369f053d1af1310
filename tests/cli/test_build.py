from __future__ import annotations

import pytest

from fagen.cli import console
from fagen.paths import SPECS

KERNELS = ["forward", "backward_prepare", "backward", "backward_convert"]


def rows(output: str) -> list[dict[str, str]]:
    """The lines of the resource table: a kernel each."""
    table, *_ = output.partition("\na100_fa2 forward:")
    heading, *lines = (text for text in table.splitlines() if text.startswith(("spec ", "a100_fa2 ")))
    names = heading.replace(" B", "_B").split()
    return [dict(zip(names, line.split(), strict=True)) for line in lines]


def test_prints_what_the_kernel_takes_and_where_it_is(fagen, a100, tmp_path):
    result = fagen("build", a100, "--out", tmp_path / "generated")
    assert result.exit_code == 0
    found = rows(result.stdout)
    assert [one["kernel"] for one in found] == KERNELS
    for one in found:
        assert one["arch"] == "sm_80"
        assert 0 < int(one["registers"]) <= 255
        assert int(one["stack_B"]) <= int(one["spill_B"])  # stored and loaded; nothing else is on the stack
        assert one["cached"] == "no"
        assert (int(one["smem_B"]) > 0) == (one["kernel"] != "backward_prepare")
        assert (tmp_path / "generated" / "a100_fa2" / f"{one['kernel']}.cu").is_file()
    assert str(tmp_path / "cache") in result.stdout.replace("\n", "")


def test_builds_the_passes_that_the_spec_has(fagen, a100, tmp_path):
    result = fagen("build", a100, "--set", "problem.passes=[forward]", "--out", tmp_path)
    assert "forward" in result.stdout and "backward" not in result.stdout


def test_a_second_build_comes_from_the_cache(fagen, a100, tmp_path):
    fagen("build", a100, "--out", tmp_path)
    assert {one["cached"] for one in rows(fagen("build", a100, "--out", tmp_path).stdout)} == {"yes"}


def test_arch_retargets_even_what_does_not_fit_its_own_and_writes_nothing(fagen, tmp_path):
    wide = ("--set", "schedule.tile={q: 128, kv: 128}", "--set", "schedule.stages.kv=2")
    rtx4090, out = SPECS / "rtx4090_fa2.yaml", tmp_path / "generated"
    assert fagen("build", rtx4090, *wide, "--out", out).exit_code == 1
    result = fagen("build", rtx4090, *wide, "--arch", "sm_90a", "--out", out)
    assert result.exit_code == 0
    assert " sm_90a " in result.stdout
    assert not out.exists()


def test_a_narrow_terminal_cuts_nothing_off(fagen, a100, tmp_path, monkeypatch):
    monkeypatch.setattr(console, "PIPE_COLUMNS", 40)
    text = fagen("build", a100, "--out", tmp_path).stdout
    assert "…" not in text and "..." not in text


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
