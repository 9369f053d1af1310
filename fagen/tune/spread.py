"""Work spread over those who can do it: each takes the next piece when it is done with one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Thread
from typing import TypeVar

from fagen.tune.budget import ENDLESS, Budget

Item = TypeVar("Item")
Worker = TypeVar("Worker")
Result = TypeVar("Result")

_END = object()  # of what there is to do


def spread(
    items: Sequence[Item],
    workers: Sequence[Worker],
    work: Callable[[Worker, Item], Result],
    budget: Budget = ENDLESS,
) -> Generator[tuple[Item, Result], None, None]:
    """`work(worker, item)` of every item, on a thread for each worker; yields in the order of their ends.

    Items may be appended while it yields. When `budget` is over it waits for no more, unless there is nothing
    yet. Raises what `work` raises. Where either is, or nobody asks for more, what has not begun is left
    undone.
    """
    todo, done = SimpleQueue(), SimpleQueue()

    def run(worker: Worker) -> None:
        for item in iter(todo.get, _END):
            try:
                done.put((item, work(worker, item), None))
            except BaseException as error:
                done.put((item, None, error))

    for worker in workers:
        Thread(target=run, args=(worker,), daemon=True).start()
    begun, count = 0, 0
    try:
        while count < len(items):
            for item in items[begun:]:
                todo.put(item)
            begun = len(items)
            try:
                item, result, error = done.get(timeout=min(budget.left, TIMEOUT_MAX) if count else None)
            except Empty:
                return
            if error is not None:
                raise error
            count += 1
            yield item, result
    finally:
        with suppress(Empty):
            while True:
                todo.get_nowait()
        for _ in workers:
            todo.put(_END)
