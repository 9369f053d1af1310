"""`fagen plan --calibrate` on a made-up journal."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from fagen.plan.efficiency import SHIPPED, MmaSync
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import predict
from fagen.spec.load import load_spec
from fagen.tune import calibrated
from fagen.tune.journal import FILE, Journal, Record
from fagen.tune.store import Where, tuning_root

GPU = "NVIDIA H200"
SPEC = {"name": "c", "family": "v2", "arch": "sm_90a", "problem": {"dtype": "bf16", "head_dim": 128}}


def journal(gpu, tiles_q, exposed=0.9):
    """Measurements of a GPU of which the model would be right with `exposed`; as many as tiles times 8."""
    truth = SHIPPED["v2 forward"]
    assert isinstance(truth, MmaSync)
    where, records = Where(gpu=gpu, driver="1", nvrtc="13.0", headers="a"), []
    for q, kv, length in product(tiles_q, (32, 64), (1024, 2048, 4096, 8192)):
        spec = load_spec(SPEC, {"schedule.tile.q": q, "schedule.tile.kv": kv})
        shape = Shape(4, length, length, 16, 16)
        seconds = predict(plan(spec), shape, {"v2 forward": replace(truth, exposed=exposed)}).seconds
        records.append(
            Record(where, spec, spec.name, shape, "forward", seconds, 5, seconds, spec.name, seconds)
        )
    root = tuning_root()
    assert root
    Journal(root / FILE).append(records)


def test_each_gpu_is_fitted_and_stored(fagen):
    journal(GPU, (64, 128, 192))
    result = fagen("plan", "--calibrate")
    assert result.exit_code == 0
    words = result.stdout
    assert f"{GPU}\nv2 forward: 24 measurements; off by " in words
    assert "as shipped" in words and "exposed" in words
    (file,) = (calibrated.calibration_root() or Path()).iterdir()
    assert f"stored in {file}" in words
    fitted = calibrated.efficiencies(GPU)["v2 forward"]
    assert isinstance(fitted, MmaSync) and fitted.exposed == pytest.approx(0.9, rel=0.15)


def test_what_could_not_be_stored_is_refused_before_it_is_fitted(fagen, monkeypatch):
    journal(GPU, (64, 128, 192))
    folder = calibrated.calibration_root()
    assert folder
    folder.write_text("a file where a directory must be")
    monkeypatch.setattr("fagen.cli.calibrate.calibrate", lambda *_: pytest.fail("fitted"))
    result = fagen("plan", "--calibrate")
    assert result.exit_code == 1 and str(folder) in result.stderr


def test_a_gpu_with_too_few_measurements_does_not_keep_others_from_being_fitted(fagen):
    journal(GPU, (64, 128, 192))
    journal("NVIDIA A100", (64,))
    result = fagen("plan", "--calibrate")
    assert result.exit_code == 0
    assert "measurements of NVIDIA A100 in the journal: v2 forward 8; at least 20" in result.stdout
    assert calibrated.efficiencies(GPU) and not calibrated.efficiencies("NVIDIA A100")


def test_no_or_few_measurements_are_refused_with_what_to_do(fagen):
    result = fagen("plan", "--calibrate")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no measurements in " in result.stderr and "fagen tune SPEC" in result.stderr
    journal(GPU, (64,))
    result = fagen("plan", "--calibrate")
    assert result.exit_code == 1
    assert "v2 forward 8; at least 20" in result.stderr and "fagen tune SPEC" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("a100_fa2.yaml",),
        ("--json",),
        ("--shape", "1,1,1,1,1"),
        ("--arch", "sm_80"),
        ("--set", "arch=sm_80"),
    ],
    ids=" ".join,
)
def test_it_is_asked_for_by_itself(fagen, words):
    result = fagen("plan", "--calibrate", *words)
    assert result.exit_code == 2
    assert "--calibrate: allowed only by itself" in result.stderr


def test_all_else_needs_a_spec(fagen):
    result = fagen("plan", "--json")
    assert result.exit_code == 2
    assert "SPEC: is missing" in result.stderr
