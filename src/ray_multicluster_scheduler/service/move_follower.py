"""Follows all moves of all jobs, whoever makes them, and tells listeners: figures and traces are made of it.

It reads what the store has written anyway, so that the engine has nothing to do with it, and it reads at its
own pace: what comes in between is told in one go.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from ray_multicluster_scheduler.errors import StoreBusy, StoreError
from ray_multicluster_scheduler.model.past_move import PastMove
from ray_multicluster_scheduler.ports import JobStore

log = logging.getLogger(__name__)

#: Moves that are read at once.
PAGE = 1_000
#: Between two readings, so that a busy queue is read in large pieces.
PAUSE_S = 0.5
#: Nothing happens for this long: look whether to go on.
IDLE_S = 5.0
JOIN_S = 10.0

Listener = Callable[[Sequence[PastMove]], None]


class MoveFollower:
    """Tells `listener`, on a thread of its own, what happens to jobs from now on."""

    def __init__(self, store: JobStore, listener: Listener) -> None:
        self._store = store
        self._listener = listener
        self._seen = store.last_event()
        self._stopping = threading.Event()
        self._news = threading.Event()
        self._unsubscribe = store.subscribe(self._news.set)
        self._thread = threading.Thread(target=self._run, name="raymc-follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Tell what is still untold, and end."""
        self._unsubscribe()
        self._stopping.set()
        self._news.set()
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._news.wait(IDLE_S)
            self._news.clear()
            if not self._read():
                return
            self._stopping.wait(PAUSE_S)
        self._read()

    def _read(self) -> bool:
        """Tell all that is new; False: the store is closed or broken, and nothing will follow."""
        try:
            while True:
                self._seen, moves = self._store.moves_since(self._seen, limit=PAGE)
                if moves:
                    self._listener(moves)
                if len(moves) < PAGE:
                    return True
        except StoreBusy as problem:
            log.warning("the moves of jobs cannot be read now: %s", problem)
            return True
        except StoreError as problem:
            if not self._stopping.is_set():
                log.error("the moves of jobs are followed no more: %s", problem)  # noqa: TRY400
            return False
