"""A background thread for work that must not run in a finalizer or delay a submit."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)
EVERY_S = 1.0


class BackgroundThread:
    """Runs callbacks in order, and periodic callbacks about once a second. A daemon: it delays no exit.

    A callback that fails is logged and the others still run: refs and actors are released here.
    """

    def __init__(self, periodic: Sequence[Callable[[], object]]) -> None:
        self._periodic = periodic
        #: Unlike `queue.Queue`, safe to use while the garbage collector runs.
        self._callbacks: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="raymc-background", daemon=True)
            self._thread.start()

    def add(self, callback: Callable[[], object]) -> None:
        """Run a callback soon."""
        self._callbacks.put(callback)

    def stop(self) -> None:
        """Stop after the callbacks that were added so far."""
        if self._thread is not None:
            self._callbacks.put(None)
            self._thread.join(EVERY_S)
            self._thread = None

    def _run(self) -> None:
        next_round = time.monotonic() + EVERY_S
        while True:
            if time.monotonic() >= next_round:
                for each in self._periodic:
                    _do(each)
                next_round = time.monotonic() + EVERY_S
            try:
                callback = self._callbacks.get(timeout=max(next_round - time.monotonic(), 0))
            except queue.Empty:
                continue
            if callback is None:
                return
            _do(callback)


def _do(callback: Callable[[], object]) -> None:
    try:
        callback()
    except BaseException as problem:  # logged: it must not prevent the later ones
        lines = str(problem).strip().splitlines() or [""]
        kind = type(problem).__name__
        log.warning("a background callback of tasks and actors failed: %s: %s", kind, lines[0])
        log.debug("where it failed", exc_info=True)
