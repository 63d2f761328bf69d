"""Follows the state changes of all jobs, made by any process, for metrics and traces.

It reads the events of the store, so the engine does no work for it. It reads at its own pace, and passes all
changes since the last reading to the listener at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from ray_multicluster_scheduler.errors import StoreBusy, StoreError
from ray_multicluster_scheduler.model.past_move import PastMove
from ray_multicluster_scheduler.store_ports import JobStore

log = logging.getLogger(__name__)

#: Moves per query.
PAGE = 1_000
#: Pause between two readings, so that a busy queue is read in large pages.
PAUSE_S = 0.5
#: Longest wait for a change before checking whether to stop.
IDLE_S = 5.0
JOIN_S = 10.0

Listener = Callable[[Sequence[PastMove]], None]


class MoveFollower:
    """Calls `listener` with all moves from now on, on its own thread."""

    def __init__(self, store: JobStore, listener: Listener) -> None:
        self._store = store
        self._listener = listener
        self._seen = store.last_event()
        #: The listener has raised; it is logged once.
        self._has_failed = False
        self._stopping = threading.Event()
        self._news = threading.Event()
        self._unsubscribe = store.subscribe(self._news.set)
        self._thread = threading.Thread(target=self._run, name="raymc-follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Pass on the remaining moves, and stop."""
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

    def _tell(self, moves: Sequence[PastMove]) -> None:
        try:
            self._listener(moves)
        except Exception:  # a bug in a metric or a trace: the next moves have to be counted all the same
            if not self._has_failed:
                log.exception("some moves of jobs are missing in metrics or traces")
            self._has_failed = True

    def _read(self) -> bool:
        """Pass on all new moves; False: the store is closed or broken, so there will be no more."""
        try:
            while True:
                self._seen, moves = self._store.moves_since(self._seen, limit=PAGE)
                if moves:
                    self._tell(moves)
                if len(moves) < PAGE:
                    return True
        except StoreBusy as problem:
            log.warning("the moves of jobs cannot be read now: %s", problem)
            return True
        except StoreError as problem:
            if not self._stopping.is_set():
                log.error("the moves of jobs are followed no more: %s", problem)  # noqa: TRY400
            return False
