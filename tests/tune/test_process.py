from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fake_work
import pytest

from fagen.errors import CompileError
from fagen.tune.budget import Budget
from fagen.tune.process import HASTE, SIGNS, Fault, Process

HERE = Path(__file__).parent
WAITS = """
import signal
import fake_work
from fagen.tune.gpu import LocalGpu
from fagen.tune.workers import Crew
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
with Crew([LocalGpu(i, fake_work.WORK) for i in range(2)], []) as crew:
    print("ready", flush=True)
    list(crew.time([fake_work.batch("hangs"), fake_work.batch("hangs_too")]))
"""


@pytest.fixture
def own() -> Iterator[Process]:
    made = Process(patience=20)
    yield made
    made.close()


@pytest.fixture
def impatient() -> Iterator[Process]:
    made = Process(fake_work.start_3, patience=0.5)
    yield made
    made.close()


def test_it_returns_and_raises_what_the_function_does(own):
    first = own.call(os.getpid)
    assert first != os.getpid()
    assert own.call(divmod, 7, 2) == (3, 1)
    with pytest.raises(CompileError, match="spills 8 bytes"):
        own.call(fake_work.time_batch, fake_work.batch("refused"))
    assert own.call(os.getpid) == first


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("exits", r"ended its process \(exit code 3\)"),
        ("crashes", r"crashed its process \(SIGSEGV\)"),
        ("loses", "illegal memory access"),
        ("raises", "KeyError: 'what nobody foresaw'"),
    ],
)
def test_after_a_fault_there_is_another_process(own, name, words):
    first = own.call(os.getpid)
    with pytest.raises(Fault, match=words) as caught:
        own.call(fake_work.time_batch, fake_work.batch("fine", name))
    assert caught.value.place == 1
    assert own.call(os.getpid) != first


def test_a_hang_is_a_fault(impatient):
    started = time.monotonic()
    with pytest.raises(Fault, match=r"no sign of life for 0\.5 s") as caught:
        impatient.call(fake_work.time_batch, fake_work.batch("hangs"))
    assert caught.value.place == 0
    assert time.monotonic() - started < 10


def test_when_time_is_up_a_hang_is_waited_for_no_longer(own):
    own.call(os.getpid)
    started = time.monotonic()
    with pytest.raises(Fault, match=rf"no sign of life for {HASTE:g} s"):
        own.call(fake_work.time_batch, fake_work.batch("hangs"), budget=Budget(started))
    assert time.monotonic() - started < 2 * HASTE


def test_what_shows_that_it_lives_may_take_long():
    own = Process(fake_work.start_3, patience=2 * SIGNS)
    assert own.call(fake_work.live, 3 * SIGNS) == "done"
    own.close()


def test_every_new_process_starts_the_same_way():
    own = Process(fake_work.start_3)
    assert own.call(fake_work.index) == 3
    with pytest.raises(Fault):
        own.call(os._exit, 1)
    assert own.call(fake_work.index) == 3
    own.close()


@pytest.mark.parametrize("is_awaited", [False, True])
def test_no_call_is_to_blame_for_a_process_that_ended_before_it(is_awaited):
    own = Process(fake_work.start_3)
    own.begin()
    if is_awaited:
        own.wait()
    assert own._pipe and (is_awaited or own._pipe.poll(20))  # it is up
    own._process.kill()
    own._process.join()
    assert own.call(fake_work.index) == 3
    own.close()


def test_a_closed_one_stays_closed(own):
    own.call(os.getpid)
    own.close()
    with pytest.raises(Fault):
        own.call(os.getpid)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left(ending):
    """Ctrl-C, which a terminal sends to all processes, and the death of the first one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    command = [sys.executable, "-c", WAITS]
    first = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    assert first.stdout and first.stdout.readline() == "ready\n"
    assert len(living(first.pid)) >= 3
    time.sleep(0.5)
    (os.killpg if ending == signal.SIGINT else os.kill)(first.pid, ending)
    _, said = first.communicate(timeout=10)
    assert first.returncode == -ending
    if ending == signal.SIGINT:
        assert said.count("KeyboardInterrupt") == 1, said  # nobody else complains
    until = time.monotonic() + 10
    while living(first.pid):
        assert time.monotonic() < until, living(first.pid)
        time.sleep(0.05)


def test_who_is_not_heard_any_more_ends_without_a_word(capfd):
    """The answer of its start is still unread then: no end of a file, but a connection that is reset."""
    own = Process(fake_work.start_3)
    own.begin()
    assert own._pipe and own._pipe.poll(20)
    own._pipe.close()
    own._process.join(20)
    assert own._process.exitcode == 0
    assert capfd.readouterr().err == ""


def living(group: int) -> list[str]:
    """The processes of a group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = stat.read_text().split(" (", 1)
        except OSError:  # ended meanwhile
            continue
        state, _, its_group, *_ = rest.rsplit(") ", 1)[1].split()
        if int(its_group) == group and state != "Z":
            found.append(pid)
    return found
