"""Tuning from end to end over workers without a GPU: who wins, what is timed, what is kept."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from statistics import median
from typing import Any

import pytest
from fake_workers import WHERE, FakeWorkers, quirk

from fagen.bench.shapes import NamedShape
from fagen.errors import TuneError
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import predict
from fagen.spec.load import load_spec
from fagen.spec.model import Spec
from fagen.tune.budget import Budget
from fagen.tune.contest import BATCH, LAST_ROUNDS
from fagen.tune.job import Timing
from fagen.tune.journal import records
from fagen.tune.space import space
from fagen.tune.store import Store
from fagen.tune.watch import Silent

SHORT = NamedShape("short", {"problem.mask": "causal"}, Shape(4, 1024, 1024, 8, 8))
FULL = NamedShape("full", {"problem.mask": "none"}, Shape(2, 4096, 4096, 8, 8))
GROUPED = NamedShape("grouped", {"problem.mask": "causal"}, Shape(2, 2048, 2048, 16, 4))
WIDE = NamedShape("wide", {"problem.head_dim": 128, "problem.mask": "causal"}, Shape(2, 2048, 2048, 8, 8))
SHAPES = (SHORT, FULL, GROUPED, WIDE)


def ideal(spec: Spec, named: NamedShape) -> float:
    """Seconds of the fastest of all variants."""
    variants = space({"a": load_spec(spec, named.problem)}, "forward", "sm_90a").variants
    return min(FakeWorkers().seconds(variant.spec, named.shape, "forward") for variant in variants)


def specs_of(workers: FakeWorkers) -> list[Spec]:
    """Everything timed."""
    return list({spec.name: spec for batch in workers.batches for spec in batch.specs}.values())


@pytest.mark.parametrize("gpus", [1, 4])
def test_the_winner_is_within_2_percent_of_the_best_and_a_fifth_is_timed(bench, mine, gpus: int) -> None:
    workers = FakeWorkers(gpus=gpus)
    spec = mine()
    outcomes = bench.tune(spec, workers=workers, shapes=SHAPES)
    by_name = {outcome.question.name: outcome for outcome in outcomes}
    assert len(by_name) == len(outcomes)
    for named in SHAPES:
        outcome = by_name[named.name]
        assert outcome.winner
        found = workers.seconds(outcome.winner.variant.spec, named.shape, "forward")
        assert found <= 1.02 * ideal(spec, named)
        assert outcome.timed <= max(5, 0.2 * outcome.feasible)
        assert outcome.winner.gain == pytest.approx(
            workers.seconds(load_spec(spec, named.problem), named.shape, "forward") / found, rel=0.02
        )
    timed = {(batch.shape, spec.name) for batch in workers.batches for spec in batch.specs}
    assert len(timed) == sum(outcome.timed for outcome in outcomes)


def test_an_exhaustive_search_times_all_and_finds_the_best(bench, mine) -> None:
    workers = FakeWorkers()
    (outcome,) = bench.tune(mine(), workers=workers, exhaustive=True)
    assert outcome.winner and outcome.timed == outcome.feasible == len(workers.timed)
    predicted = sorted(predict(plan(spec), SHORT.shape).seconds for spec in specs_of(workers))
    assert predicted[outcome.winner.rank - 1] == pytest.approx(outcome.winner.predicted)
    found = workers.seconds(outcome.winner.variant.spec, SHORT.shape, "forward")
    assert found <= 1.003 * ideal(mine(), SHORT)


def test_clocks_that_differ_between_batches_do_not_decide(bench, mine) -> None:
    """The fake's clock differs by up to 20% between batches: as it stands is in each to compare with."""
    workers = FakeWorkers(noise=0.0)
    (outcome,) = bench.tune(mine(), workers=workers, exhaustive=True)
    assert outcome.winner
    assert len(workers.batches) > 5
    assert {batch.specs[0].name for batch in workers.batches} == {"mine"}
    assert workers.seconds(outcome.winner.variant.spec, SHORT.shape, "forward") == ideal(mine(), SHORT)


def test_rounds_double_while_the_field_halves(bench, mine) -> None:
    workers = FakeWorkers()
    bench.tune(mine(), workers=workers)
    names: dict[int, set[str]] = {}
    for batch in workers.batches:
        assert len(batch.specs) <= BATCH + 1
        names.setdefault(batch.rounds, set()).update(spec.name for spec in batch.specs)
    assert list(names) == [5, 10, 20, 40]
    assert [len(of) for of in names.values()] == sorted((len(of) for of in names.values()), reverse=True)


@pytest.mark.parametrize(("length", "first", "last"), [(2**14, 5, 40), (2**19, 5, 5), (2**20, 3, 3)])
def test_slow_kernels_have_fewer_rounds(bench, mine, length: int, first: int, last: int) -> None:
    """A second's, but three: 40 of 2**20 keys would keep a GPU busy for hours."""
    workers = FakeWorkers()
    long = NamedShape("long", {}, Shape(1, length, length, 1, 1))
    (outcome,) = bench.tune(mine(), workers=workers, shapes=[long])
    rounds = [batch.rounds for batch in workers.batches]
    assert (rounds[0], rounds[-1]) == (first, last)
    assert rounds == sorted(rounds) and not outcome.cut_short


def test_the_spec_as_it_stands_wins_where_nothing_is_faster(bench, mine) -> None:
    class Slow(FakeWorkers):
        def seconds(self, spec: Spec, shape: Shape, direction: str) -> float:
            return (1.0 if spec.name == "mine" else 1.2) * 1e-4

    (outcome,) = bench.tune(mine(), workers=Slow())
    assert outcome.winner and outcome.winner.variant.as_it_stands
    assert (outcome.winner.beat, outcome.winner.gain) == ("mine", 1.0)


def test_a_pinned_configuration_is_timed_checked_and_kept_as_it_is(bench, mine) -> None:
    spec = mine(tune={}, schedule={"tile": {"q": 64, "kv": 80}, "stages": {"kv": 3}})
    workers = FakeWorkers()
    (outcome,) = bench.tune(spec, workers=workers)
    assert outcome.winner and outcome.winner.variant.spec.schedule == spec.schedule
    assert [(len(batch.specs), batch.rounds) for batch in workers.batches] == [(1, LAST_ROUNDS)]
    assert workers.checked == ["mine"]
    assert load_spec(bench.out / "mine_tuned_short.yaml").schedule == spec.schedule


@pytest.mark.parametrize("named", SHAPES, ids=lambda named: named.name)
def test_the_file_of_the_winner_is_planned_as_the_winner_was(bench, mine, named: NamedShape) -> None:
    (outcome,) = bench.tune(mine(), workers=FakeWorkers(), shapes=[named])
    path = bench.out / f"mine_tuned_{named.name}.yaml"
    loaded = load_spec(path)
    assert outcome.winner
    assert loaded.name == path.stem and not loaded.tune
    assert loaded.problem == outcome.winner.variant.spec.problem
    assert plan(loaded).tiling == outcome.winner.variant.plan.tiling
    text = path.read_text()
    assert f"{outcome.winner.gain:.3f} times as fast as mine as it stands" in text
    assert f"{outcome.timed} of {outcome.feasible} variants timed" in text
    assert "On NVIDIA H200, driver 580.1, NVRTC 13.0, 20" in text


def test_a_stored_result_is_used_without_building_or_timing_anything(bench, mine) -> None:
    (before,) = bench.tune(mine(), workers=FakeWorkers())
    again = FakeWorkers()
    (after,) = bench.tune(mine(), workers=again)
    assert not (again.built or again.batches or again.checked)
    assert after.stored and not before.stored
    assert after.winner == before.winner
    assert (after.timed, after.feasible) == (before.timed, before.feasible)


@pytest.mark.parametrize("change", ["space", "exhaustive", "shape", "driver"])
def test_it_is_an_answer_to_the_same_question_alone(bench, mine, change: str) -> None:
    bench.tune(mine(), workers=FakeWorkers())
    again = FakeWorkers()
    options: dict[str, Any] = {}
    spec = mine()
    match change:
        case "space":
            spec = mine(tune={"tile.kv": [48, 64]})
        case "exhaustive":
            options["exhaustive"] = True
        case "shape":
            options["shapes"] = [NamedShape("short", SHORT.problem, Shape(4, 1000, 1000, 8, 8))]
        case "driver":
            again.kind = again.kind._replace(where=type(WHERE)("NVIDIA H200", "590", "13.0", "a"))
    (outcome,) = bench.tune(spec, workers=again, **options)
    assert again.batches and not outcome.stored


def test_what_cannot_be_built_makes_room_for_the_next(bench, mine) -> None:
    workers = FakeWorkers(unbuildable="stages_q_1")
    (outcome,) = bench.tune(mine(), workers=workers)
    assert outcome.winner and "stages_q_1" not in outcome.winner.variant.spec.name
    assert outcome.timed == int(0.2 * outcome.feasible)
    assert outcome.failures
    assert {problem for _, problem in outcome.failures} == {"spills 8 bytes"}
    assert not any("stages_q_1" in name for name in workers.timed)


def test_what_crashes_is_skipped_and_reported(bench, mine) -> None:
    workers = FakeWorkers(crashing="stages_q_1")
    (outcome,) = bench.tune(mine(), workers=workers)
    assert outcome.winner and "stages_q_1" not in outcome.winner.variant.spec.name
    assert ("mine__stages_q_1__scheduler_persistent_lpt", "crashed its process (SIGSEGV)") in outcome.failures
    crashed = [
        name for batch in workers.batches for spec in batch.specs if "stages_q_1" in (name := spec.name)
    ]
    assert len(crashed) == len(set(crashed))  # none is tried twice


@pytest.mark.parametrize("how", ["unbuildable", "crashing"])
def test_where_the_spec_as_it_stands_does_not_run_the_others_compete_without_it(
    bench, mine, how: str
) -> None:
    class Standing(FakeWorkers):
        def build(self, specs: Any, *rest: Any) -> Any:
            for spec, _ in super().build(specs, *rest):
                yield spec, "spills" if how == "unbuildable" and spec.name == "mine" else ""

        def _timing(self, spec: Spec, *rest: Any) -> Any:
            found = super()._timing(spec, *rest)
            return type(found)(problem="hangs") if how == "crashing" and spec.name == "mine" else found

    workers = Standing()
    (outcome,) = bench.tune(mine(), workers=workers)
    assert outcome.winner and not outcome.winner.variant.as_it_stands
    assert workers.seconds(outcome.winner.variant.spec, SHORT.shape, "forward") <= 1.02 * ideal(mine(), SHORT)
    assert [name for name, _ in outcome.failures] == ["mine"]


def test_a_wrong_winner_is_dropped_and_the_next_takes_its_place(bench, mine) -> None:
    (right,) = bench.tune(mine(), workers=FakeWorkers())
    assert right.winner
    name = right.winner.variant.spec.name
    workers = FakeWorkers(wrong=name)
    (outcome,) = bench.tune(mine(tune={**mine().tune, "stages.kv": [2]}), workers=workers, exhaustive=True)
    assert outcome.winner
    assert workers.checked[-1] == outcome.winner.variant.spec.name
    assert name not in outcome.winner.variant.spec.name
    for wrong in workers.checked[:-1]:
        assert (wrong, "out: error 1.0; allowed 0.01") in outcome.failures


def test_where_all_are_wrong_nobody_wins_and_nothing_is_kept(bench, mine) -> None:
    workers = FakeWorkers(wrong="mine")
    (outcome,) = bench.tune(mine(), workers=workers)
    assert outcome.winner is None
    assert "no variant can be used" in outcome.problem and "error 1.0" in outcome.problem
    assert len(workers.checked) == len(set(workers.checked)) == 12
    assert not bench.out.exists()
    assert not list(Store(bench.store).entries(WHERE))


def test_where_nothing_can_be_built_the_problem_says_so(bench, mine) -> None:
    (outcome,) = bench.tune(mine(), workers=FakeWorkers(unbuildable="mine"))
    assert outcome.winner is None and "spills 8 bytes" in outcome.problem
    assert len(outcome.failures) == outcome.feasible  # all were tried


@pytest.mark.parametrize("stage", ["build", "time"])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_after_ctrl_c_a_rerun_goes_on_and_times_nothing_twice(bench, mine, stage: str, number: int) -> None:
    def stop(at: int) -> None:
        if at == number:
            raise KeyboardInterrupt

    whole = FakeWorkers()
    (undisturbed,) = type(bench)(bench.folder / "other").tune(mine(), workers=whole)
    first = FakeWorkers(before_build=stop) if stage == "build" else FakeWorkers(before_batch=stop)
    with pytest.raises(KeyboardInterrupt):
        bench.tune(mine(), workers=first)
    second = FakeWorkers()
    (outcome,) = bench.tune(mine(), workers=second)

    def rivals(workers: FakeWorkers) -> list[tuple[str, int]]:
        return [(spec.name, batch.rounds) for batch in workers.batches for spec in batch.specs[1:]]

    assert not set(rivals(first)) & set(rivals(second))
    assert outcome.winner and undisturbed.winner
    assert outcome.timed == undisturbed.timed
    assert len(second.batches) <= len(whole.batches) - (len(first.batches) if stage == "time" else 0)


def test_all_that_was_timed_before_ctrl_c_counts(bench, mine) -> None:
    """Interrupted while the winner is checked: a rerun has nothing left to time."""

    class Stopped(FakeWorkers):
        def check(self, spec: Spec, shape: Shape, direction: str) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.tune(mine(), workers=Stopped())
    again = FakeWorkers()
    (outcome,) = bench.tune(mine(), workers=again)
    assert outcome.winner and not again.batches


class Ticking:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def tick(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("build", "batch"), [(0.1, 0.1), (8.0, 0.5), (0.1, 9.0), (2.0, 2.0)])
def test_a_budget_ends_in_time_with_the_best_by_then(bench, mine, build: float, batch: float) -> None:
    clock = Ticking()
    workers = FakeWorkers(before_build=lambda _: clock.tick(build), before_batch=lambda _: clock.tick(batch))
    shapes = [SHORT, GROUPED]
    outcomes = bench.tune(mine(), workers=workers, shapes=shapes, budget=Budget(60.0, clock))
    assert clock.now <= 75
    if build < 8:
        assert any(outcome.winner for outcome in outcomes)
    for outcome in outcomes:
        assert outcome.winner or outcome.problem == "the budget ended before any variant was timed"
    again = FakeWorkers()
    known = [outcome.question.name for outcome in outcomes if outcome.winner]
    later = bench.tune(mine(), workers=again, shapes=[named for named in shapes if named.name in known])
    assert all(outcome.stored for outcome in later) and not again.batches


def test_what_a_budget_cut_short_is_an_answer_to_no_longer_budget(bench, mine) -> None:
    def tune(seconds: float) -> tuple[Any, FakeWorkers]:
        clock = Ticking()
        workers = FakeWorkers(before_batch=lambda _: clock.tick(1.0))
        (outcome,) = bench.tune(mine(), workers=workers, budget=Budget(seconds, clock, seconds))
        return outcome, workers

    short, _ = tune(2.0)
    assert short.winner and short.cut_short
    again, nobody = tune(2.0)
    assert again.stored and not nobody.batches
    longer, workers = tune(100.0)
    assert not (longer.stored or longer.cut_short)
    assert workers.batches
    settled, nobody = tune(1000.0)
    assert settled.stored and settled.winner == longer.winner and not nobody.batches


def test_what_time_was_up_for_before_it_was_timed_has_not_failed(bench, mine) -> None:
    clock = Ticking()

    class Slow(FakeWorkers):
        """All but the first of the second batch are cut off."""

        def time(self, batches: Any, budget: Any = None) -> Any:
            for batch, timings in super().time(batches):
                if len(self.batches) == 2:
                    clock.tick(100.0)
                    timings = (timings[0], *(Timing() for _ in timings[1:]))
                yield batch, timings

    (outcome,) = bench.tune(mine(), workers=Slow(), budget=Budget(60.0, clock))
    assert outcome.winner and outcome.cut_short and not outcome.failures
    assert outcome.timed == BATCH + 1


def test_an_entry_that_was_edited_is_no_answer(bench, mine) -> None:
    bench.tune(mine(), workers=FakeWorkers())
    (path,) = bench.store.rglob("*.json")
    data = json.loads(path.read_text())
    data["spec"]["schedule"]["tile"]["kv"] = 48
    data["tiling"] = asdict(plan(load_spec(data["spec"])).tiling)
    path.write_text(json.dumps(data))
    again = FakeWorkers()
    (outcome,) = bench.tune(mine(), workers=again)
    assert outcome.winner and not outcome.stored


def test_a_budget_builds_the_best_of_each_shape_before_the_second_best_of_any(bench, mine) -> None:
    workers = FakeWorkers()
    bench.tune(mine(), workers=workers, shapes=[SHORT, FULL])
    first, second = workers.built[:2]
    assert [first, second] == ["mine", "mine__mask_none"]


def test_three_tunings_agree(bench, mine) -> None:
    found = []
    for number in range(3):
        workers = FakeWorkers(noise=0.01, seed=number)
        own = type(bench)(bench.folder / str(number))
        (outcome,) = own.tune(mine(), workers=workers, shapes=[SHORT])
        assert outcome.winner
        found.append(workers.seconds(outcome.winner.variant.spec, SHORT.shape, "forward"))
    assert max(found) <= 1.05 * min(found)


def test_the_backward_is_tuned_on_the_winner_of_the_forward(bench, mine) -> None:
    spec = mine(
        problem={"dtype": "bf16", "head_dim": 64, "mask": "causal"},
        tune={"tile.kv": [64, 96, 128], "backward.tile.q": [32, 64, 128], "backward.stages.q": [1, 2]},
    )
    workers = FakeWorkers()
    forward, backward = bench.tune(spec, workers=workers)
    assert (forward.direction, backward.direction) == ("forward", "backward")
    assert forward.winner and backward.winner
    both = backward.winner.variant.spec.schedule
    assert both.tile == forward.winner.variant.spec.schedule.tile
    assert set(backward.winner.variant.choice) <= {"backward.tile.q", "backward.stages.q"}
    loaded = load_spec(bench.out / "mine_tuned_short.yaml")
    for outcome in (forward, backward):
        assert outcome.winner
        assert plan(loaded, direction=outcome.direction).tiling == outcome.winner.variant.plan.tiling
    text = (bench.out / "mine_tuned_short.yaml").read_text()
    assert "# forward: " in text and "# backward: " in text
    again = FakeWorkers()
    assert all(outcome.stored for outcome in bench.tune(spec, workers=again)) and not again.batches


class Noting(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("passes", [["forward"], ["forward", "backward"]])
def test_lists_for_a_pass_that_a_spec_does_not_have_are_named(bench, mine, passes: list[str]) -> None:
    problem = {"dtype": "bf16", "head_dim": 64, "mask": "causal", "passes": passes}
    spec = mine(problem=problem, tune={"tile.kv": [64, 128], "backward.tile.q": [32, 64]})
    twin = NamedShape("twin", SHORT.problem, SHORT.shape)
    watch = Noting()
    bench.tune(spec, workers=FakeWorkers(), shapes=[SHORT, twin], watch=watch)
    idle = "mine: the lists for backward.tile.q are not tried: problem.passes is [forward]"
    assert watch.notes == [idle] * (passes == ["forward"])


def test_several_specs_compete_and_the_fastest_as_it_stands_is_what_is_beaten(bench, mine) -> None:
    slow = mine(name="slow", tune={}, schedule={"tile": {"q": 64, "kv": 32}})
    workers = FakeWorkers()
    (outcome,) = bench.tune(slow, mine(), workers=workers)
    assert outcome.winner and outcome.winner.variant.base == "mine"
    assert outcome.winner.beat == "mine"
    assert {"slow", "mine"} <= workers.timed


def test_two_specs_of_one_name_are_refused(bench, mine) -> None:
    with pytest.raises(TuneError, match="two specs are named mine"):
        bench.tune(mine(), mine(tune={}), workers=FakeWorkers())


def test_a_spec_named_as_a_variant_of_another_is_refused(bench, mine) -> None:
    other = mine(name="mine__tile_kv_64", tune={}, schedule={"tile": {"q": 64, "kv": 32}})
    with pytest.raises(
        TuneError, match=r"mine, tile\.kv 64, and .*, as it stands, are both named mine__tile_kv"
    ):
        bench.tune(mine(tune={"tile.kv": [64, 96]}), other, workers=FakeWorkers())


def test_a_shape_that_no_spec_fits_is_told_and_the_others_are_tuned(bench, mine) -> None:
    spec = mine(schedule={"tile": {"q": 192, "kv": 128}}, tune={})
    large = NamedShape("large", {"problem.head_dim": 256}, Shape(1, 512, 512, 4, 4))
    outcomes = bench.tune(spec, workers=FakeWorkers(), shapes=[large, SHORT])
    by_name = {outcome.question.name: outcome for outcome in outcomes}
    assert by_name["short"].winner
    assert "bytes wanted, 232,448 allowed" in by_name["large"].problem


def test_each_kind_of_reason_is_told_once_where_nothing_is_left(bench, mine) -> None:
    spec = mine(tune={"tile.kv": [128, 224, 240, 256], "stages.kv": [2, 3, 4, 8]})
    much = 2**31 - 1
    (outcome,) = bench.tune(spec, workers=FakeWorkers(), shapes=[replace(SHORT, shape=Shape(*[much] * 5))])
    assert outcome.winner is None
    lines = outcome.problem.splitlines()
    assert len(lines) < len(outcome.refused)
    assert any("more for the like" in line for line in lines)
    assert any("allowed: up to" in line and "bytes wanted" not in line for line in lines)


def test_where_nothing_fits_any_shape_there_is_an_error_before_any_work(bench, mine) -> None:
    spec = mine(
        problem={"dtype": "bf16", "head_dim": 256, "passes": ["forward"]},
        schedule={"tile": {"q": 192, "kv": 256}, "stages": {"kv": 4}},
        tune={},
    )
    workers = FakeWorkers()
    with pytest.raises(TuneError, match="bytes wanted, 232,448 allowed"):
        bench.tune(spec, workers=workers)
    assert not workers.built


def test_one_shape_under_two_names_has_two_answers(bench, mine) -> None:
    workers = FakeWorkers()
    twin = NamedShape("twin", SHORT.problem, SHORT.shape)
    outcomes = bench.tune(mine(), workers=workers, shapes=[SHORT, twin])
    assert [outcome.question.name for outcome in outcomes] == ["short", "twin"]
    assert all(outcome.winner for outcome in outcomes)
    assert {path.stem for path in bench.out.iterdir()} == {"mine_tuned_short", "mine_tuned_twin"}


def test_all_gpus_have_something_to_do(bench, mine) -> None:
    workers = FakeWorkers(gpus=4)
    bench.tune(mine(), workers=workers)
    assert sum(batch.rounds == 5 for batch in workers.batches) == 4


def test_slow_kernels_are_timed_in_smaller_batches(bench, mine) -> None:
    workers = FakeWorkers()
    long = NamedShape("long", {}, Shape(1, 2**20, 2**20, 1, 1))
    bench.tune(mine(tune={"tile.kv": [64, 80, 96, 112]}), workers=workers, shapes=[long])
    assert all(len(batch.specs) == 2 for batch in workers.batches)


def test_records_have_what_was_predicted_and_what_was_measured(bench, mine) -> None:
    bench.tune(mine(), workers=FakeWorkers(noise=0.0))
    kept = list(records(bench.folder))
    assert kept
    for record in kept:
        planned = plan(record.spec, direction=record.direction)
        assert record.predicted == predict(planned, record.shape).seconds
        exact = record.predicted * quirk(record.spec, record.direction)
        assert 0.9 * exact <= record.seconds <= 1.1 * exact
    assert median(record.seconds / record.predicted for record in kept) == pytest.approx(1.0, abs=0.1)
