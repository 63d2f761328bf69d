"""Lets one thread stop in the middle of a write, so that a test decides who comes first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, Engine, event
from tests.support.waiting import PATIENCE_S

T = TypeVar("T")
#: A thread that should be blocked is given this long to show that it is not.
BLOCKED_S = 0.5


class PausedCommit:
    """A call in a thread of its own: it has done its work and stands before its commit.

    With `before`, it stands before its first statement that begins so.
    """

    def __init__(self, pool: ThreadPoolExecutor, work: Callable[[], T], *, before: str | None = None) -> None:
        self._before = before
        self._reached = threading.Event()
        self._may_commit = threading.Event()
        self._thread: int | None = None
        self.result: Future[T] = pool.submit(self._run, work)
        assert self._reached.wait(PATIENCE_S)

    def _run(self, work: Callable[[], T]) -> T:
        self._thread = threading.get_ident()
        place = ("commit", self._pause) if self._before is None else ("before_cursor_execute", self._look)
        event.listen(Engine, *place)
        try:
            return work()
        finally:
            event.remove(Engine, *place)
            self._reached.set()

    def _look(self, _connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if self._before is not None and statement.startswith(self._before):
            self._pause(_connection)

    def _pause(self, _connection: Connection) -> None:
        if threading.get_ident() == self._thread:
            self._reached.set()
            assert self._may_commit.wait(PATIENCE_S)

    def go_on(self) -> T:
        """Let it commit, and return its result."""
        self._may_commit.set()
        return self.result.result(PATIENCE_S)


@contextmanager
def threads() -> Iterator[ThreadPoolExecutor]:
    """Threads for the calls of a test."""
    with ThreadPoolExecutor(8) as pool:
        yield pool


def is_blocked(call: Future[T]) -> bool:
    """Tell whether a call waits for another one."""
    done, _ = wait([call], BLOCKED_S)
    return not done
