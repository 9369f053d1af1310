"""`fagen tune` on a real GPU: in time, repeatable, kept, and unharmed by candidates that do not fit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from fagen import load
from fagen.bench.shapes import NamedShape
from fagen.bench.trial import trial
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec
from fagen.tune.budget import starting_now
from fagen.tune.job import Batch
from fagen.tune.journal import Journal, records
from fagen.tune.local import local_workers
from fagen.tune.outcome import Outcome
from fagen.tune.question import questions
from fagen.tune.store import Store
from fagen.tune.tune import Kept, Tuner
from fagen.tune.watch import Silent

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

V2: dict[str, Any] = {
    "name": "tuned_on_gpu",
    "family": "v2",
    "arch": "sm_80",
    "problem": {"dtype": "bf16", "head_dim": 256},
    "tune": {
        "tile.q": [64, 128, 256],
        "tile.kv": [32, 64, 256],
        "stages.kv": [2, 4],
        "backward.tile.q": [32, 64, 256],
    },
}
SHAPE = NamedShape("small", {"problem.mask": "causal"}, Shape(2, 1024, 1024, 8, 8))
SHAPES = "small: {batch: 4, seqlen_q: 2048, heads_q: 16, head_dim: 64, mask: causal}\n"
SPEC = """\
name: in_time
family: v2
arch: sm_80
problem: {dtype: bf16, head_dim: 64, passes: [forward]}
tune: {tile.q: [64, 128, 256], tile.kv: [32, 64, 128], stages.kv: [2, 3], ctas_per_sm: [1, 2]}
"""


def tune(folder: Path, source: dict[str, Any]) -> list[Outcome]:
    kept = Kept(Store(folder / "store"), Journal(folder / "journal.jsonl"), folder / "tuned")
    with local_workers() as workers:
        tuner = Tuner(workers, kept, starting_now(None), False, Silent())
        return list(tuner.tune(questions([(load_spec(source), [SHAPE])])))


def test_a_candidate_that_does_not_fit_is_skipped_with_both_numbers_and_harms_nothing(tmp_path: Path) -> None:
    forward, backward = tune(tmp_path, V2)
    why = dict(forward.refused)["tuned_on_gpu, tile.q 256, tile.kv 256, stages.kv 4"]
    assert "shared memory per CTA: " in why and " bytes wanted, " in why and " allowed" in why
    assert any(" allowed" in why for _, why in backward.refused)
    path = tmp_path / "tuned" / "tuned_on_gpu_tuned_small.yaml"
    for outcome in (forward, backward):
        assert outcome.winner and outcome.winner.gain >= 1
        assert not outcome.failures
        loaded = plan(load_spec(path), direction=outcome.direction)
        assert loaded.tiling == outcome.winner.variant.plan.tiling
    done = trial(load(path), SHAPE.shape, seed=1, device=0)
    assert done.right
    assert torch.ones(2, device="cuda").sum().item() == 2


def test_what_was_predicted_and_measured_is_kept(tmp_path: Path) -> None:
    tune(tmp_path, V2)
    kept = list(records(tmp_path))
    assert {record.direction for record in kept} == {"forward", "backward"}
    assert all(1e-6 < record.seconds < 1e-1 and record.predicted > 0 for record in kept)
    assert {record.where.gpu for record in kept} == {torch.cuda.get_device_name()}


def run(folder: Path, cache: Path) -> tuple[str, float]:
    """What `fagen tune` says with a budget of 60 s, and how long it takes."""
    (folder / "in_time.yaml").write_text(SPEC)
    (folder / "shapes.yaml").write_text(SHAPES)
    command = [
        sys.executable,
        "-m",
        "fagen",
        "tune",
        "in_time.yaml",
        "--shapes",
        "shapes.yaml",
        "--budget",
        "60s",
    ]
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    environment = {**os.environ, "FAGEN_CACHE_DIR": str(cache), "PYTHONPATH": paths}
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, time.monotonic() - began


def test_a_budget_is_kept_the_result_too_and_three_tunings_agree(tmp_path: Path) -> None:
    specs = []
    for number in range(3):
        cache = tmp_path / f"cache{number}"
        said, seconds = run(tmp_path, cache)
        assert seconds <= 75
        again, _ = run(tmp_path, cache)
        assert "nothing was timed" in again and "nothing was timed" not in said
        specs.append(load_spec(tmp_path / "tuned" / "in_time_tuned_small.yaml", {"name": f"winner{number}"}))
    with local_workers() as workers:
        ((_, timings),) = workers.time([Batch(tuple(specs), Shape(4, 2048, 2048, 16, 16), "forward", 30)])
    seconds = [median(timing.seconds) for timing in timings]
    assert max(seconds) <= 1.05 * min(seconds)
