"""Ctrl-C during a launch, and launches from other threads."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from cases import run_case

from fagen.errors import EmulatorError

PROMPT = 5  # seconds; the launch itself takes far longer


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Ctrl-C is KeyboardInterrupt, also in a process that was started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def interrupted() -> Iterator[None]:
    """Ctrl-C a moment after the start of the block, which it must end at once."""
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    started = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    assert time.monotonic() - started < PROMPT


def test_ctrl_c_ends_the_launch_and_leaves_the_emulator_usable():
    threads = threading.active_count()
    run_case("nothing")  # compiled and loaded
    with interrupted():
        run_case("polling_forever", grid=20, os_threads=2, step_limit=0)
    assert threading.active_count() == threads
    run_case("nothing")
    with pytest.raises(EmulatorError, match="uninitialised"):
        run_case("unwritten")


def test_ctrl_c_ends_no_launch_of_another_thread():
    with ThreadPoolExecutor() as pool:
        other = pool.submit(run_case, "polling_forever", step_limit=5_000_000)
        with interrupted():
            run_case("polling_forever", step_limit=0)
        with pytest.raises(EmulatorError, match="no end within step_limit, 5000000 steps"):
            other.result()
