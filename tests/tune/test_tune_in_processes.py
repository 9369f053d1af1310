"""The search over the tuner's real processes, whose work is made up: crashes and all."""

from __future__ import annotations

from fake_workers import WORK, FakeWorkers

from fagen.bench.shapes import NamedShape
from fagen.plan.launch import Shape
from fagen.tune.gpu import LocalCompiler, LocalGpu
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
