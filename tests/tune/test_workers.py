from __future__ import annotations

import logging
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import fake_work
import pytest
import torch
from fake_work import KIND, SHAPE, WORK, batch, spec

from fagen.errors import LaunchError, TuneError
from fagen.tune.budget import Budget
from fagen.tune.gpu import LocalCompiler, LocalGpu
from fagen.tune.job import Timing
from fagen.tune.local import local_workers
from fagen.tune.process import HASTE
from fagen.tune.spread import spread
from fagen.tune.work import WORK as ON_GPUS
from fagen.tune.workers import Crew


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    """A GPU, and a compiler."""
    with Crew([LocalGpu(0, WORK, patience=1)], [LocalCompiler(WORK)]) as made:
        yield made


def test_a_crew_knows_its_gpus(crew):
    assert (crew.kind, crew.gpus) == (KIND, 1)


@pytest.mark.parametrize(
    ("faulty", "problem"),
    [
        ("exits", "ended its process"),
        ("crashes", "SIGSEGV"),
        ("hangs", "no sign of life"),
        ("loses", "illegal memory access"),
    ],
)
def test_a_variant_that_faults_is_named_and_spoils_no_other(crew, faulty, problem):
    asked = batch("fine", faulty, "good")
    ((answered, timings),) = crew.time([asked])
    assert answered is asked
    first, fault, last = timings
    assert problem in fault.problem and fault.seconds == ()
    assert (first, last) == (Timing((0.0,) * 3), Timing((1.0,) * 3))  # two in a new batch


def test_all_may_fault(crew):
    ((_, timings),) = crew.time([batch("exits", "exits_too")])
    assert all("exit code 3" in timing.problem for timing in timings)


def test_when_time_is_up_no_hang_is_waited_for_and_nothing_is_timed_anew(crew):
    started = time.monotonic()
    ((_, timings),) = crew.time([batch("fine", "hangs", "good")], Budget(0.0))
    assert time.monotonic() - started < 2 * HASTE
    first, fault, last = timings
    assert "no sign of life" in fault.problem
    assert first == last == Timing()


def test_what_is_wrong_with_a_whole_batch_is_wrong_with_each(crew):
    ((_, timings),) = crew.time([batch("fine", "refused")])
    assert [timing.problem for timing in timings] == ["spills 8 bytes"] * 2


def test_builds_tell_what_is_wrong(crew):
    specs = [spec(name) for name in ("fine", "refused", "crashes", "good")]
    assert dict((own.name, problem) for own, problem in crew.build(specs, "forward")) == {
        "fine": "",
        "refused": "spills 8 bytes",
        "crashes": "crashed its process (SIGSEGV)",
        "good": "",
    }


def test_no_process_starts_for_what_is_built_already():
    before = multiprocessing.active_children()
    compiler = LocalCompiler(replace(WORK, find=fake_work.find_all))
    found = [compiler.build(spec(name), "sm_90a", "forward") for name in ("fine", "crashes", "refused")]
    assert found == ["", "", "spills 8 bytes"]
    assert multiprocessing.active_children() == before


def test_what_cannot_be_looked_up_is_built():
    compiler = LocalCompiler(replace(WORK, find=fake_work.find_fails))
    found = [compiler.build(spec(name), "sm_90a", "forward") for name in ("fine", "raises")]
    compiler.close()
    assert found == ["", "KeyError: 'what nobody foresaw'"]


def test_a_check_tells_what_is_wrong_or_how_it_faulted(crew):
    assert crew.check(spec("fine"), SHAPE, "forward") == ""
    assert crew.check(spec("wrong"), SHAPE, "forward") == "out: error 1"
    assert "SIGSEGV" in crew.check(spec("crashes"), SHAPE, "forward")
    assert crew.check(spec("fine"), SHAPE, "forward") == ""


def test_a_check_goes_to_a_gpu_that_is_idle():
    work = replace(WORK, check=fake_work.check_slowly)
    with Crew([LocalGpu(0, work), LocalGpu(1, work)], []) as crew:
        names = ["slow", "a", "b", "c"]
        asked = spread(names, range(2), lambda _, name: crew.check(spec(name), SHAPE, "forward"))
        by_name = dict(asked)
    assert list(by_name)[-1] == "slow"
    others = {by_name[name] for name in "abc"}
    assert len(others) == 1 and by_name["slow"] not in others


def test_batches_are_spread_over_the_gpus_that_are_alike(caplog):
    work = replace(WORK, kind=fake_work.kind_by_index, time=fake_work.time_where)
    with caplog.at_level(logging.WARNING, "fagen"), Crew([LocalGpu(i, work) for i in range(3)], []) as crew:
        assert crew.gpus == 2
        found = [timings[0].seconds[0] for _, timings in crew.time([batch("fine")] * 4)]
    assert sorted(found) == [0, 0, 1, 1]
    assert "1 GPU(s) left out: gpu another GPU (here a GPU)" in caplog.text


def test_a_gpu_that_cannot_be_worked_on_is_an_error_and_no_variant_is_to_blame():
    work = replace(WORK, start=fake_work.no_start)
    with Crew([LocalGpu(5, work)], []) as crew:
        for _ in range(2):
            with pytest.raises(TuneError, match=r"GPU 5: .* finds no driver"):
                list(crew.time([batch("fine")]))
            with pytest.raises(TuneError, match=r"GPU 5: .* finds no driver"):
                crew.check(spec("fine"), SHAPE, "forward")


def test_gpus_come_up_at_once_and_nobody_waits_before_there_is_work():
    before = len(multiprocessing.active_children())
    started = time.monotonic()
    work = replace(WORK, start=fake_work.slow_start)
    with Crew([LocalGpu(i, work) for i in range(2)], []) as crew:
        assert len(multiprocessing.active_children()) == before + 2
        assert time.monotonic() - started < 1.0
        time.sleep(started + 3.5 - time.monotonic())  # they come up meanwhile
        started = time.monotonic()
        assert len(list(crew.time([batch("fine")] * 2))) == 2
        assert time.monotonic() - started < 1.0


def test_all_end_at_a_time():
    class Slow(LocalCompiler):
        def close(self) -> None:
            time.sleep(0.5)

    started = time.monotonic()
    with Crew([LocalGpu(0, WORK)], [Slow(WORK) for _ in range(4)]):
        pass
    assert time.monotonic() - started < 1.5


def test_only_the_processes_that_time_import_torch():
    """It takes seconds, which they would take after the tuner's own."""
    modules = "local, work, workers, tune, question, journal, store, report"
    code = f"import sys; from fagen.tune import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_work_on_a_gpu_that_is_not_there_says_what_is_missing():
    with pytest.raises(LaunchError, match="needs an NVIDIA GPU"):
        local_workers()
    gpu = LocalGpu(0, ON_GPUS)
    with pytest.raises(LaunchError, match="needs an NVIDIA GPU"):
        gpu.check(spec("fine"), SHAPE, "forward")
    gpu.close()
