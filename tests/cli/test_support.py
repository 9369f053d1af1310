from __future__ import annotations

import pytest

from fagen.compile.nvrtc import compile_source
from fagen.emit.render import render
from fagen.hw.arch import ARCHES
from fagen.plan.kernels import kernels
from fagen.support import (
    EMULATOR,
    FAMILIES,
    FEATURES,
    HARDWARE,
    embedded,
    markdown,
    matrix,
    plans_of,
    read_results,
    record,
)


@pytest.mark.parametrize("arch", ARCHES)
def test_what_is_said_to_compile_compiles(arch):
    allowed = [cell for cell in matrix() if cell.arch == arch and cell.verdict != "refused"]
    plans = [plan for cell in allowed for plan in plans_of(cell.family, cell.feature, arch)]
    planned = {kernel.symbol: kernel for plan in plans for kernel in kernels(plan)}
    for kernel in planned.values():
        compile_source(render(kernel))


def test_what_is_refused_says_which_key_and_what_is_allowed():
    refused = [cell for cell in matrix() if cell.verdict == "refused"]
    assert all("allowed" in cell.detail for cell in refused)


def test_only_recorded_features_run(tmp_path, monkeypatch):
    results = tmp_path / "results.json"
    record("sm_90a", HARDWARE, "NVIDIA H200", {("v2", "bf16"): True, ("v2", "fp16"): False}, results)
    monkeypatch.setattr("fagen.support.read_results", lambda: read_results(results))
    runs = [(cell.feature.name, cell.arch) for cell in matrix() if cell.verdict == "runs"]
    assert runs == [("bf16", "sm_90a")]
    assert "Ran on: sm_90a NVIDIA H200." in markdown(matrix())
    record("sm_90a", EMULATOR, "emulator", {("v2", "fp16"): True, ("v2", "bf16"): True}, results)
    emulated = [(cell.feature.name, cell.arch) for cell in matrix() if cell.verdict == "emulated"]
    assert emulated == [("fp16", "sm_90a")]  # what ran on hardware says so


def test_a_record_replaces_what_ran_again_and_keeps_the_rest(tmp_path):
    results = tmp_path / "results.json"
    record("sm_90a", HARDWARE, "NVIDIA H200", {("v2", "bf16"): True, ("v2", "fp16"): True}, results)
    record("sm_90a", HARDWARE, "NVIDIA H200", {("v2", "fp16"): False}, results)
    record("sm_80", HARDWARE, "NVIDIA A100", {("v2", "causal"): True}, results)
    record("sm_80", EMULATOR, "emulator", {("v2", "bf16"): True}, results)
    found = {
        (arch, target): by_target[target]["right"]
        for arch, by_target in read_results(results).items()
        for target in by_target
    }
    assert found == {
        ("sm_80", HARDWARE): {"v2": ["causal"]},
        ("sm_80", EMULATOR): {"v2": ["bf16"]},
        ("sm_90a", HARDWARE): {"v2": ["bf16"]},
    }


def test_the_markdown_has_a_row_per_feature_and_numbers_its_reasons(fagen):
    result = fagen("support", "--markdown")
    assert result.exit_code == 0
    rows = [line for line in result.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == len(FAMILIES) * (1 + len(FEATURES))
    assert "refused (1)" in result.stdout
    assert "\n1. `" in result.stdout


def test_a_family_has_columns_for_the_architectures_that_hold_it_and_names_the_others():
    table = markdown(matrix())
    assert f"| v2, both passes | {' | '.join(ARCHES)} |\n" in table
    assert "| v3, both passes | sm_90a |\n" in table
    assert "\nRefused on sm_80, sm_86, sm_89, sm_100a, sm_103a, sm_120a: family v3 is for sm_90a." in table
    assert table.count("Refused on") == 1  # v2 runs on all of them


def test_into_replaces_what_is_between_the_markers(fagen, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- support:begin -->\nold\n<!-- support:end -->\nafter\n")
    assert fagen("support", "--into", page).exit_code == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- support:begin -->\n| v1")
    assert text.endswith("<!-- support:end -->\nafter\n")
    assert "old" not in text
    assert embedded(text, markdown(matrix())) == text
