"""A background thread for what must not happen inside a finalizer or hold up a submit."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)
EVERY_S = 1.0


class Keeper:
    """Runs chores one after the other, and `each_round` about once a second. Daemon: it holds up no exit."""

    def __init__(self, each_round: Callable[[], None]) -> None:
        self._each_round = each_round
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
        while True:
            try:
                chore = self._chores.get(timeout=EVERY_S)
            except queue.Empty:
                self._each_round()
                continue
            if chore is None:
                return
            chore()
