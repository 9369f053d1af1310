from __future__ import annotations

import threading
import time

import pytest

from fagen.tune.budget import starting_now
from fagen.tune.spread import spread


def test_each_takes_the_next_piece_when_it_is_done():
    """The slow one does one of four, while the fast one does the others."""
    gate = threading.Event()
    left = [1, 2, 3]

    def work(worker: str, item: int) -> str:
        if worker == "slow":
            gate.wait(10)
        else:
            time.sleep(0.05)
            left.pop()
            if not left:
                gate.set()
        return worker

    found = list(spread(range(4), ["slow", "fast"], work))
    assert sorted(item for item, _ in found) == [0, 1, 2, 3]
    assert [worker for _, worker in found] == ["fast"] * 3 + ["slow"]


def test_what_work_raises_ends_it():
    def work(worker: None, item: int) -> int:
        if item == 1:
            raise KeyError(item)
        return item

    found = spread([0, 1, 2], [None], work)
    assert next(found) == (0, 0)
    with pytest.raises(KeyError):
        next(found)
    assert list(found) == []


def test_what_nobody_asks_for_is_left_undone():
    done: list[int] = []
    begun, gate = threading.Event(), threading.Event()

    def work(worker: None, item: int) -> int:
        if item == 1:
            begun.set()
            gate.wait(10)
        done.append(item)
        return item

    first = spread([0, 1, 2], [None], work)
    next(first)
    assert begun.wait(10)
    first.close()
    gate.set()
    time.sleep(0.1)
    assert done == [0, 1]


def test_what_is_appended_while_it_yields_is_done_too():
    """Also by one who had nothing to do: both of the last two wait for each other."""
    both = threading.Barrier(2)

    def work(worker: int, item: int) -> None:
        if item > 1:
            both.wait(10)

    items = [0]
    found = []
    for item, _ in spread(items, range(2), work):
        found.append(item)
        if item == 0:
            items.append(1)
        if item == 1:
            items += [2, 3]
    assert found[:2] == [0, 1] and sorted(found) == [0, 1, 2, 3]


def test_no_thread_is_left():
    before = threading.active_count()
    items = spread(range(3), range(2), lambda worker, item: item)
    next(items)
    items.close()
    until = time.monotonic() + 5
    while threading.active_count() > before:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_nothing_to_do():
    assert list(spread([], [None], lambda worker, item: item)) == []


def test_when_time_is_up_what_hangs_is_waited_for_no_more():
    gate = threading.Event()

    def work(worker: None, item: str) -> None:
        if item == "hangs":
            gate.wait(60)

    found = spread(["fine", "hangs"], [None], work, starting_now(0.2))
    assert [item for item, _ in found] == ["fine"]
    gate.set()


def test_one_result_is_waited_for_however_little_time_there_is():
    found = spread([1, 2], [None], lambda worker, item: time.sleep(0.2), starting_now(0.0))
    assert [item for item, _ in found] == [1]
