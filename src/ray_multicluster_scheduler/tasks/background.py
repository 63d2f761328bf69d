"""A background thread for what must not happen inside a finalizer or hold up a submit."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)
EVERY_S = 1.0


class Keeper:
    """Runs chores one after the other, and the regular ones about once a second. Daemon: it holds up no exit.

    A chore that fails is told in the log, and all others are done: refs and actors are let go here.
    """

    def __init__(self, regular: Sequence[Callable[[], object]]) -> None:
        self._regular = regular
        #: Unlike other queues, it may be used while the garbage collector runs.
        self._chores: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it runs."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="raymc-keeper", daemon=True)
            self._thread.start()

    def add(self, chore: Callable[[], object]) -> None:
        """Have something done soon."""
        self._chores.put(chore)

    def stop(self) -> None:
        """End after the chores that are known now."""
        if self._thread is not None:
            self._chores.put(None)
            self._thread.join(EVERY_S)
            self._thread = None

    def _run(self) -> None:
        next_round = time.monotonic() + EVERY_S
        while True:
            if time.monotonic() >= next_round:
                for each in self._regular:
                    _do(each)
                next_round = time.monotonic() + EVERY_S
            try:
                chore = self._chores.get(timeout=max(next_round - time.monotonic(), 0))
            except queue.Empty:
                continue
            if chore is None:
                return
            _do(chore)


def _do(chore: Callable[[], object]) -> None:
    try:
        chore()
    except BaseException as problem:  # told in the log: it must not keep the later ones from being done
        words = str(problem).strip().splitlines() or [""]
        log.warning("a chore of tasks and actors failed: %s: %s", type(problem).__name__, words[0])
        log.debug("where it failed", exc_info=True)
