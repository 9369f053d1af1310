"""The search over the tuner's real processes, whose work is made up: crashes and all."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path

from fake_workers import WORK, FakeWorkers, start_when_told

from fagen.bench.shapes import NamedShape
from fagen.plan.launch import Shape
from fagen.tune.gpu import LocalCompiler, LocalGpu
from fagen.tune.watch import Silent
from fagen.tune.workers import Crew

SHORT = NamedShape("short", {"problem.mask": "causal"}, Shape(4, 1024, 1024, 8, 8))


def test_variants_that_do_not_build_or_crash_are_left_out_and_the_best_other_wins(bench, mine) -> None:
    spec = mine(tune={"tile.kv": [64, 96], "stages.q": [1, 2]})
    with Crew([LocalGpu(0, WORK), LocalGpu(1, WORK)], [LocalCompiler(WORK)]) as workers:
        (outcome,) = bench.tune(spec, workers=workers, shapes=[SHORT], exhaustive=True)
    assert outcome.winner
    problems = dict(outcome.failures)
    assert any("spills" in problem for name, problem in problems.items() if "tile_kv_64" in name)
    assert any("SIGSEGV" in problem for name, problem in problems.items() if "stages_q_1" in name)
    assert outcome.timed + len(problems) == outcome.feasible == 5
    assert not {"tile_kv_64", "stages_q_1"} & set(outcome.winner.variant.spec.name.split("__"))
    found = FakeWorkers().seconds(outcome.winner.variant.spec, SHORT.shape, "forward")
    standing = FakeWorkers().seconds(spec.model_copy(update={"tune": {}}), SHORT.shape, "forward")
    assert found <= 1.003 * standing


def test_gpus_come_up_while_plans_are_made_and_the_first_one_to_wait_is_timing(
    bench, mine, monkeypatch, tmp_path: Path
) -> None:
    class LetsThemStart(Silent):
        """When there is something to time."""

        def __init__(self) -> None:
            self.stages: list[str] = []

        def stage(self, name: str, steps: int) -> None:
            self.stages.append(name)
            assert len(multiprocessing.active_children()) >= 2
            if name == "timing":
                (tmp_path / "may_start").touch()

    monkeypatch.setenv("MAY_START", str(tmp_path / "may_start"))
    work = replace(WORK, start=start_when_told)
    watch = LetsThemStart()
    with Crew([LocalGpu(0, work), LocalGpu(1, work)], [LocalCompiler(work)]) as workers:
        (outcome,) = bench.tune(mine(), workers=workers, watch=watch)
    assert outcome.winner
    assert list(dict.fromkeys(watch.stages))[:4] == ["planning", "predicting", "building", "timing"]
