"""A process of its own for work that may crash or hang: watched from outside, ended and started anew.

The work is a function of a module, called with arguments that can be pickled. It tells how far it is (`at`,
`alive`), so that whoever asked for it knows what a crash or a hang came of.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from fagen.errors import FagenError
from fagen.tune.budget import ENDLESS, Budget

START = 180.0  # seconds for a process to come up: imports, a CUDA context
PATIENCE = 15.0  # seconds without a sign of life after which a process hangs
HASTE = 5.0  # the same where time is up
SIGNS = 1.0  # seconds between two signs of life
END = 5.0  # seconds for a process that has hung up to be gone

_spawning = multiprocessing.get_context("spawn")  # a CUDA context does not survive a fork


class Fault(Exception):
    """A process crashed, hung, or failed as nobody foresaw; `place` is what it was at, if known."""

    def __init__(self, why: str, place: int | None = None):
        super().__init__(why, place)
        self.why = why
        self.place = place

    def __str__(self) -> str:
        return self.why


def _nothing() -> None: ...


class Process:
    """A process that `begin` or the first call starts, and the first call after its end starts again.

    It ends with the process that made it, and leaves Ctrl-C to that one.
    """

    def __init__(self, start: Callable[[], object] = _nothing, patience: float = PATIENCE):
        """`start` is called first in every new process; see PATIENCE."""
        self._start_function = start
        self._patience = patience
        self._turn = threading.Lock()
        self._process: Any = None
        self._pipe: Connection | None = None
        self._is_up = False
        self._closed = False

    def begin(self) -> None:
        """Start the process, if there is none; does not wait until it is up."""
        with self._turn:
            self._begin()

    def wait(self) -> None:
        """Until the process is up. Raises what `start` raises, as `call` does."""
        with self._turn:
            self._wait()

    def call(self, function: Callable[..., Any], *args: Any, budget: Budget = ENDLESS) -> Any:
        """What `function(*args)` returns there; calls from several threads take turns.

        Raises the FagenError that the function does. Whatever else it raises is a Fault, as are the death and
        the hang of the process; the next call then has a new one. When `budget` is over, a silence of HASTE
        seconds is a hang.
        """
        with self._turn:
            self._wait()
            return self._answer(self._patience, budget, pickle.dumps((function, args)))

    def close(self) -> None:
        """End the process for good, whatever it is at."""
        self._closed = True
        self._kill()

    def _begin(self) -> None:
        if self._closed:
            raise Fault("was ended")
        if self._pipe is not None:
            return
        self._is_up = False
        self._pipe, its = _spawning.Pipe()
        first = pickle.dumps((self._start_function, ()))
        self._process = _spawning.Process(target=_serve, args=(its, first), daemon=True)
        resource_tracker.ensure_running()  # the first start does, and would let the signal through again
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        its.close()
        if self._closed:
            self._kill()

    def _wait(self) -> None:
        self._come_up()
        if not self._process.is_alive():  # it ended while it had nothing to do: no call is to blame
            self._kill()
            self._come_up()

    def _come_up(self) -> None:
        self._begin()
        if not self._is_up:
            try:
                self._answer(START, ENDLESS)
            except FagenError:  # the next call starts another one
                self._kill()
                raise
            self._is_up = True

    def _answer(self, patience: float, budget: Budget, request: bytes | None = None) -> Any:
        """What comes of a request; with none, of the start."""
        try:
            answer = self._message(patience, budget, request)
        except BaseException:  # Ctrl-C, too: the answer would be taken for that of the next request
            self._kill()
            raise
        if isinstance(answer, _Raised):
            raise answer.error
        return answer.value

    def _message(self, patience: float, budget: Budget, request: bytes | None) -> _Returned | _Raised:
        place, pipe = None, self._pipe
        try:
            if pipe is None:
                raise EOFError
            if request is not None:
                pipe.send_bytes(request)
            while pipe.poll(silence := min(patience, max(HASTE, budget.left))):
                message = pipe.recv()
                if not isinstance(message, _At):
                    break
                place = message.place
            else:
                raise Fault(f"gave no sign of life for {silence:.3g} s", place)
        except (EOFError, OSError):
            self._process.join(END)
            raise Fault(_epitaph(self._process.exitcode), place) from None
        if isinstance(message, Fault):
            raise Fault(message.why, place)
        return message

    def _kill(self) -> None:
        with suppress(AttributeError, ValueError):  # there is none, or not yet
            self._process.kill()
            self._process.join(END)
        self._pipe = None


def _epitaph(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended its process (exit code {code})"
    with suppress(ValueError):
        return f"crashed its process ({signal.Signals(-code).name})"
    return f"crashed its process (signal {-code})"


# What follows runs in the process.


class _At(NamedTuple):
    place: int | None


class _Returned(NamedTuple):
    value: Any


class _Raised(NamedTuple):
    error: FagenError


_watcher: Connection | None = None
_last = _At(None)
_told = 0.0  # when


def at(place: int | None) -> None:
    """Tell whoever watches this process that it lives and what it is at; where nobody does, nothing."""
    global _last, _told
    now = time.monotonic()
    if _watcher is not None and (place != _last.place or now >= _told + SIGNS):
        _last, _told = _At(place), now
        _watcher.send(_last)


def alive() -> None:
    """Tell whoever watches this process that it lives, and is where it was."""
    at(_last.place)


def _serve(watcher: Connection, first: bytes) -> None:
    """Do what is asked, until nobody is there who asks or hears the answer."""
    global _watcher, _last, _told
    _watcher = watcher
    threading.Thread(target=_end_with_parent, daemon=True).start()
    request = first
    with suppress(EOFError, OSError):  # the second where an answer is left unread
        while True:
            _last, _told = _At(None), time.monotonic()
            watcher.send(_done(request))
            request = watcher.recv_bytes()


def _done(request: bytes) -> _Returned | _Raised | Fault:
    try:
        function, args = pickle.loads(request)
        return _Returned(function(*args))
    except FagenError as error:
        return _Raised(error)
    except Fault as fault:
        return fault
    except Exception as error:
        return Fault(f"{type(error).__name__}: {error}")


def _end_with_parent() -> None:
    """Also while the main thread waits for a kernel that hangs."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
