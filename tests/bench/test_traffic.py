from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rich.console import Console

from fagen.bench.traffic import L2, READ, WRITTEN, Traffic, profile, read_profile, table
from fagen.errors import LaunchError
from fagen.paths import SPECS
from fagen.plan import io
from fagen.plan.formulas import formula

HEAD = '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'


def rows(number: int, kernel: str, read: str, written: str, sectors: str) -> list[str]:
    values = {READ: ("byte", read), WRITTEN: ("byte", written), L2: ("sector", sectors)}
    return [
        f'"{number}","{kernel}","Command line profiler metrics","{metric}","{unit}","{value}"'
        for metric, (unit, value) in values.items()
    ]


def ncu_text() -> str:
    lines = [
        "==PROF== Connected to process 1 (python3)",
        *("==PROF== Disconnected from process 1", HEAD),
        *rows(0, "fagen_h200_fa2__mask_none", "1,000", "300", "50"),
        *rows(1, "reduce_kernel", "999", "70", "9"),
        *rows(2, "reduce_kernel", "999", "8", "9"),
        *rows(3, "fagen_h200_fa2", "2,000", "400", "60"),
    ]
    return "\n".join(lines)


def fake_ncu(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    script = folder / "ncu"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(script))


def test_what_later_kernels_write_back_was_written_by_the_first():
    first, second = read_profile(ncu_text())
    assert first == Traffic(read=1000, written=300, left_in_l2=78, l2=50 * 32)
    assert first.hbm == 1378
    assert second == Traffic(read=2000, written=400, left_in_l2=0, l2=60 * 32)


def test_a_profile_without_kernels_shows_what_ncu_said():
    with pytest.raises(LaunchError, match="ERR_NVGPUCTRPERM"):
        read_profile("==ERROR== ERR_NVGPUCTRPERM - no permission to read counters")


def test_table_has_the_model_beside_the_measurement(todo):
    at = io.setting(todo[0].plan, todo[0].shape)
    hbm, l2 = (io.evaluate(formula("v2", "forward", level), at) for level in ("HBM", "L2"))
    console = Console(width=160)
    with console.capture() as capture:
        console.print(table(todo[:1], [Traffic(hbm, hbm, hbm, l2)]))
    row = capture.get().splitlines()[-1].split()
    assert (row[:3], row[8], row[11]) == (["h200_fa2", "none", "1024"], "3.000", "1.000")


def test_without_ncu_it_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(LaunchError, match="`ncu` on PATH"):
        profile(SPECS / "h200_fa2.yaml")


def test_ncu_is_asked_for_the_metrics_and_nothing_may_touch_the_caches(tmp_path, monkeypatch):
    fake_ncu(tmp_path, monkeypatch, 'echo "$@"')
    asked = profile(SPECS / "h200_fa2.yaml")
    for words in (f"--metrics {READ},{WRITTEN},{L2}", "--cache-control none", "--replay-mode application"):
        assert words in asked
    assert asked.strip().endswith("h200_fa2.yaml")


def test_a_failure_of_ncu_is_shown(tmp_path, monkeypatch):
    fake_ncu(tmp_path, monkeypatch, "echo '==ERROR== no GPU'; exit 9")
    with pytest.raises(LaunchError, match="code 9:\n==ERROR== no GPU"):
        profile(SPECS / "h200_fa2.yaml")
