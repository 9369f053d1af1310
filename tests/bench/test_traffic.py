from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rich.console import Console

from fagen.bench import traffic
from fagen.bench.traffic import L2, READ, WRITTEN, Pass, Traffic, profile, read_profile, table
from fagen.errors import LaunchError
from fagen.paths import SPECS
from fagen.plan import io
from fagen.plan.formulas import formula
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

FLUSH = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<int, ...>>(T3)"
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
        *rows(0, "fagen_h200_fa2__mask_none_fwd", "1,000", "300", "50"),
        *rows(1, FLUSH, "999", "70", "9"),
        *rows(2, FLUSH, "999", "8", "9"),
        *rows(3, "nvjet_hsh_256x128", "2,000", "400", "60"),
        *rows(4, "cublasLt::splitKreduce_kernel<32, 16>", "500", "100", "10"),
        *rows(5, "softmax_warp_forward", "10", "20", "30"),
        *rows(6, FLUSH, "999", "5", "9"),
    ]
    return "\n".join(lines)


@pytest.fixture
def one() -> Pass:
    spec = load_spec(SPECS / "h200_fa2.yaml")
    return Pass(spec.name, plan(spec), Shape(9, 2048, 2048, 16, 16))


def fake_ncu(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    script = folder / "ncu"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(script))


def test_a_pass_is_all_kernels_up_to_the_flush_and_what_that_writes_back_was_written_by_it():
    first, second = read_profile(ncu_text(), 2)
    assert first == Traffic(read=1000, written=300, left_in_l2=78, l2=50 * 32)
    assert first.hbm == 1378
    assert second == Traffic(read=2510, written=520, left_in_l2=5, l2=100 * 32)


def test_a_profile_without_kernels_shows_what_ncu_said():
    with pytest.raises(LaunchError, match=r"0 passes, not 1:\n.*ERR_NVGPUCTRPERM"):
        read_profile("==ERROR== ERR_NVGPUCTRPERM - no permission to read counters", 1)


def test_a_profile_that_lacks_a_pass_is_not_taken_for_the_others():
    with pytest.raises(LaunchError, match="2 passes, not 3"):
        read_profile(ncu_text(), 3)


def test_table_has_the_model_beside_the_measurement(one):
    at = io.setting(one.plan, one.shape)
    hbm, l2 = (io.evaluate(formula("v2", "forward", level), at) for level in ("HBM", "L2"))
    console = Console(width=160)
    with console.capture() as capture:
        standard = Pass("standard", one.plan, one.shape)
        console.print(table([one, standard], [Traffic(hbm, hbm, hbm, l2)] * 2))
    ours, standard = (line.split() for line in capture.get().splitlines()[-2:])
    assert ours[:4] == ["h200_fa2", "forward", "causal", "2048"]
    assert (ours[9], ours[12]) == ("3.000", "1.000")
    assert standard[11:] == ["-", "-"]


def test_standard_attention_and_every_spec_are_measured_in_both_passes(monkeypatch):
    monkeypatch.setattr(traffic, "arch_of_device", lambda _: "sm_90a")
    todo = traffic.traffic_passes([SPECS / "h200_fa2.yaml"])
    found = [(one.algorithm, one.plan.direction, one.mask) for one in todo if one.shape.seqlen_q == 2048]
    assert found == [
        (algorithm, direction, mask)
        for algorithm, mask in (("standard", "none"), ("v2", "none"), ("v2", "causal"))
        for direction in ("forward", "backward")
    ]
    assert all(one.shape.batch * one.shape.heads_q >= 132 for one in todo)


def test_without_ncu_it_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(LaunchError, match="`ncu` on PATH"):
        profile([SPECS / "h200_fa2.yaml"])


def test_ncu_is_asked_for_the_metrics_and_nothing_may_touch_the_caches(tmp_path, monkeypatch):
    fake_ncu(tmp_path, monkeypatch, 'echo "$@"')
    asked = profile([SPECS / "h200_fa2.yaml"])
    for words in (f"--metrics {READ},{WRITTEN},{L2}", "--cache-control none", "--replay-mode application"):
        assert words in asked
    assert asked.strip().endswith("h200_fa2.yaml")


def test_a_failure_of_ncu_is_shown(tmp_path, monkeypatch):
    fake_ncu(tmp_path, monkeypatch, "echo '==ERROR== no GPU'; exit 9")
    with pytest.raises(LaunchError, match="code 9:\n==ERROR== no GPU"):
        profile([SPECS / "h200_fa2.yaml"])
