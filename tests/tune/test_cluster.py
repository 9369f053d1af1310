from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_work import KIND, SHAPE, WORK, batch, spec

import fagen
from fagen.errors import TuneError
from fagen.tune import cluster
from fagen.tune.cluster import ray_workers
from fagen.tune.job import Timing
from fagen.tune.workers import Crew

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    """Of a cluster on this machine that takes itself to have two GPUs."""
    paths = [str(Path(__file__).parent), str(Path(fagen.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with ray_workers("auto", WORK) as made:
        yield made
    ray.shutdown()


def test_it_times_as_one_machine_does(crew):
    assert (crew.kind, crew.gpus) == (KIND, 2)
    asked = [batch("fine", "crashes", "good"), batch("refused")]
    found = {len(answered.specs): timings for answered, timings in crew.time(asked)}
    first, fault, last = found[3]
    assert "SIGSEGV" in fault.problem
    assert (first, last) == (Timing((0.0,) * 3), Timing((1.0,) * 3))
    assert found[1] == (Timing(problem="spills 8 bytes"),)


def test_it_builds_and_checks_as_one_machine_does(crew):
    specs = [spec(name) for name in ("fine", "refused", "crashes", "raises")]
    found = {own.name: problem for own, problem in crew.build(specs, "forward")}
    assert found == {
        "fine": "",
        "refused": "spills 8 bytes",
        "crashes": "crashed the compiler",
        "raises": "failed: KeyError: 'what nobody foresaw'",
    }
    assert crew.check(spec("wrong"), SHAPE, "forward") == "out: error 1"


def test_all_gpus_may_be_taken(crew):
    with pytest.raises(TuneError, match="'auto' has no free GPU"):
        ray_workers("auto", WORK)


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "[::1]:{}", "127.0.0.1:port"])
def test_where_nobody_answers_is_said_at_once(monkeypatch, address):
    monkeypatch.setattr(cluster, "ray", FakeRay)
    with socket.socket() as taken:  # and not listening
        taken.bind(("127.0.0.1", 0))
        address = address.format(taken.getsockname()[1])
        with pytest.raises(TuneError, match=re.escape(f"no cluster at {address!r}: ")):
            ray_workers(address, WORK)


class FakeRay:
    """Of which a connection is asked only where a node answers."""

    @staticmethod
    def is_initialized() -> bool:
        return False


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(cluster, "ray", None)
    with pytest.raises(TuneError, match=r"pip install 'fagen\[ray\]'"):
        ray_workers("auto", WORK)
