from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest


@pytest.fixture
def v3(tmp_path: Path) -> Path:
    path = tmp_path / "v3.yaml"
    path.write_text("name: v3\nfamily: v3\narch: sm_90a\nproblem:\n  head_dim: 128\n  dtype: bf16\n")
    return path


def test_json_is_of_the_shape_that_is_asked_for(fagen, a100):
    result = fagen("plan", a100, "--json", "--shape", "1,2048,2048,16,16")
    found = json.loads(result.stdout)
    assert list(found) == ["forward", "backward"]
    assert all(one["launch"]["b_sq_sk_hq_hkv"] == "1,2048,2048,16,16" for one in found.values())


def test_tables_are_of_every_pass(fagen, a100):
    both = fagen("plan", a100).stdout
    assert "The forward" in both and "The backward" in both
    alone = fagen("plan", a100, "--set", "problem.passes=[forward]").stdout
    assert "The forward" in alone and "The backward" not in alone


def test_timeline_shows_roles_engines_and_the_prediction(fagen, v3):
    result = fagen("plan", v3, "--timeline", "--shape", "1,2048,2048,16,16")
    assert result.exit_code == 0
    for row in ("load", "math 0", "tensor core", "MUFU", "FMA"):
        assert re.search(f"^{row} +\\S", result.stdout, re.MULTILINE)
    assert "us predicted" in result.stdout


def test_timeline_follows_the_schedule(fagen, v3):
    overlapped, in_sequence = (
        fagen("plan", v3, "--timeline", "--set", f"schedule.roles.math.overlap={on}").stdout
        for on in ("true", "false")
    )
    assert overlapped != in_sequence


def test_svg_is_written_where_it_is_asked_for(fagen, v3, tmp_path):
    file = tmp_path / "timeline.svg"
    assert fagen("plan", v3, "--timeline", "--svg", file).exit_code == 0
    assert ET.fromstring(file.read_text()).tag.endswith("svg")
    assert fagen("plan", v3, "--timeline", "--svg", tmp_path / "nowhere" / "t.svg").exit_code == 2


def test_html_is_a_page_of_the_passes_and_the_shape_that_are_asked_for(fagen, a100, tmp_path):
    file = tmp_path / "plan.html"
    words = ("plan", a100, "--html", file, "--shape", "1,2048,2048,16,16")
    result = fagen(*words)
    assert (result.exit_code, result.stdout) == (0, f"wrote {file}\n")
    text = file.read_text(encoding="utf-8")
    assert "<h1>Plan of a100_fa2</h1>" in text and "1,2048,2048,16,16" in text
    assert "Forward: barriers" in text and "Backward: barriers" in text
    fagen(*words, "--set", "problem.passes=[forward]")
    assert "Backward" not in file.read_text(encoding="utf-8")


def test_html_needs_a_directory_and_a_plan_that_fits(fagen, a100, tmp_path):
    assert fagen("plan", a100, "--html", tmp_path / "nowhere" / "p.html").exit_code == 2
    file = tmp_path / "p.html"
    result = fagen("plan", a100, "--html", file, "--set", "schedule.tile.kv=512")
    assert result.exit_code == 1 and not file.exists()


@pytest.mark.parametrize("other", ["--json", "--timeline"])
def test_html_is_asked_for_alone(fagen, v3, tmp_path, other):
    result = fagen("plan", v3, "--html", tmp_path / "p.html", other)
    assert result.exit_code == 2
    assert "--html: allowed only without --timeline and --json" in result.stderr


@pytest.mark.parametrize("words", [("--timeline", "--json"), ("--svg", "t.svg")], ids=" ".join)
def test_options_that_would_be_ignored_are_refused(fagen, v3, words):
    result = fagen("plan", v3, *words)
    assert result.exit_code == 2
    assert "--timeline" in result.stderr


def test_v2_has_no_timeline(fagen, a100):
    result = fagen("plan", a100, "--timeline")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "family is 'v2'; allowed with a timeline: 'v3'" in result.stderr
