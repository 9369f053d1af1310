"""Work spread over those who can do it: each takes the next piece when it is done with one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Thread
from typing import TypeVar

from fagen.tune.budget import ENDLESS, Budget

Item = TypeVar("Item")
Worker = TypeVar("Worker")
Result = TypeVar("Result")


def spread(
    items: Iterable[Item],
    workers: Sequence[Worker],
    work: Callable[[Worker, Item], Result],
    budget: Budget = ENDLESS,
) -> Generator[tuple[Item, Result], None, None]:
    """`work(worker, item)` of every item, on a thread for each worker; yields in the order of their ends.

    When `budget` is over it waits for no more, unless there is nothing yet. Raises what `work` raises. Where
    either is, or nobody asks for more, what has not begun is left undone.
    """
    todo, done = SimpleQueue(), SimpleQueue()
    items = list(items)
    for item in items:
        todo.put(item)

    def run(worker: Worker) -> None:
        with suppress(Empty):
            while True:
                item = todo.get_nowait()
                try:
                    done.put((item, work(worker, item), None))
                except BaseException as error:
                    done.put((item, None, error))

    for worker in workers:
        Thread(target=run, args=(worker,), daemon=True).start()
    try:
        for count in range(len(items)):
            try:
                item, result, error = done.get(timeout=min(budget.left, TIMEOUT_MAX) if count else None)
            except Empty:
                return
            if error is not None:
                raise error
            yield item, result
    finally:
        with suppress(Empty):
            while True:
                todo.get_nowait()
