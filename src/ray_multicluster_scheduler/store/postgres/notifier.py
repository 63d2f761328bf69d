"""Notifications over PostgreSQL's LISTEN and NOTIFY.

They are sent inside the transaction that changes something, so they arrive after it is visible. Receiving
needs a connection of its own that is not behind a pooler of transactions. Without one, the store itself is
read from time to time.
"""

from __future__ import annotations

import selectors
import socket
import threading
import uuid
from collections.abc import Callable

import psycopg
from sqlalchemy import Connection

from ray_multicluster_scheduler.store.backend import ChangeNotifier
from ray_multicluster_scheduler.store.postgres.database import PostgresAddress

#: Pause before the next try to connect.
RECONNECT_S = 1.0


class ListenNotifier(ChangeNotifier):
    """Notifies with LISTEN and NOTIFY."""

    def __init__(
        self, address: PostgresAddress, read_changes: Callable[[], int], *, fallback_poll_s: float
    ) -> None:
        super().__init__(read_changes, fallback_poll_s=fallback_poll_s)
        self._address = address
        self._channel = f"raymc_{address.schema}"
        #: Sent with notifications, so that a process knows its own.
        self._own = uuid.uuid4().hex
        self._thread: threading.Thread | None = None
        #: Written to by `close`: the thread waits for it and for the server at the same time.
        self._ending, self._end = socket.socketpair()

    def listen(self) -> int:
        """Receive the notifications of other processes from now on; return how many came so far.

        Read the store after this call, not before it: then no change is missed. The first call waits until
        the connection is there, or cannot be had now.
        """
        with self._condition:
            if self._thread is None and not self._closed.is_set():
                tried = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(tried,), name="raymc-notifications", daemon=True
                )
                self._thread.start()
            else:
                return self._received
        tried.wait()
        return super().listen()

    def notify_in(self, tx: Connection) -> None:
        """Notify all other processes when this transaction commits."""
        tx.exec_driver_sql(f"NOTIFY {self._channel}, '{self._own}'")

    def notify(self) -> None:
        """Notify this process; the others were notified by the commit."""
        self.notify_here()

    def close(self) -> None:
        """Stop receiving, and wake all waiting threads."""
        self._closed.set()
        self._end.close()
        with self._condition:
            self._condition.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._ending.close()

    def _run(self, tried: threading.Event) -> None:
        while not self._closed.is_set():
            try:
                with (
                    psycopg.connect(self._address.connection_string, autocommit=True) as connection,
                    selectors.DefaultSelector() as ready,  # `select` itself knows no file beyond the 1024th
                ):
                    connection.execute(f"LISTEN {self._channel}")
                    for source in (connection, self._ending):
                        ready.register(source, selectors.EVENT_READ)
                    tried.set()
                    self._notify_if_changed()  # changes while there was no connection
                    while not self._closed.is_set():
                        ready.select(self._fallback_poll_s)
                        self._receive(connection)
            except (psycopg.Error, OSError):  # also: this process has too many open files
                tried.set()
                self._notify_if_changed()
                self._closed.wait(RECONNECT_S)
        tried.set()

    def _receive(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        came = list(connection.notifies(timeout=0))
        if not came:
            self._notify_if_changed()
        elif any(each.payload != self._own for each in came):
            self.notify_here()
