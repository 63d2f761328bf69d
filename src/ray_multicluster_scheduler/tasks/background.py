"""A background thread for what must not happen inside a finalizer or hold up a submit."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)
EVERY_S = 1.0


class BackgroundThread:
    """Runs callbacks one after the other, and the periodic ones about once a second. Daemon: no exit waits.

    A callback that fails is told in the log, and all others are done: refs and actors are let go here.
    """

    def __init__(self, periodic: Sequence[Callable[[], object]]) -> None:
        self._periodic = periodic
        #: Unlike other queues, it may be used while the garbage collector runs.
        self._callbacks: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it runs."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="raymc-background", daemon=True)
            self._thread.start()

    def add(self, callback: Callable[[], object]) -> None:
        """Have something done soon."""
        self._callbacks.put(callback)

    def stop(self) -> None:
        """End after the callbacks that are known now."""
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
    except BaseException as problem:  # told in the log: it must not keep the later ones from being done
        words = str(problem).strip().splitlines() or [""]
        log.warning("a chore of tasks and actors failed: %s: %s", type(problem).__name__, words[0])
        log.debug("where it failed", exc_info=True)
