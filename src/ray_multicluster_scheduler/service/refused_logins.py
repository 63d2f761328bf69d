"""Refused logins for the audit trail. Repeated ones from an address are counted, not recorded one by one."""

from __future__ import annotations

import threading
from contextlib import suppress

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.access import AuditEntry
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.store_ports import AccessStore

#: One entry per address in this time.
EVERY_S = 60.0
#: Addresses with a counter of their own.
MOST_ADDRESSES = 1000
ACTION = "login"


class RefusedLogins:
    """Decides which refused login is written down, and writes it. Safe for several threads."""

    def __init__(self, store: AccessStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        #: By address: when an entry was written last, and how many were refused since.
        self._told: dict[str | None, tuple[float, int]] = {}

    def count(self, address: str | None) -> bool:
        """Count a login that is refused; tell whether it is to be recorded."""
        with self._lock:
            told_at, since = self._told.get(address, (None, 0))
            if told_at is not None and self._clock.monotonic() - told_at < EVERY_S:
                self._told[address] = told_at, since + 1
                return False
            return True

    def record(self, address: str | None) -> None:
        """Write down that a login was refused, and how many were before it; as far as the store works."""
        with self._lock:
            _, since = self._told.get(address, (0.0, 0))
            if len(self._told) >= MOST_ADDRESSES:
                self._told.clear()
            self._told[address] = self._clock.monotonic(), 0
        before = f"; {since} more since the entry before" if since else ""
        outcome = f"refused: invalid token{before}"
        entry = AuditEntry(at=self._clock.now(), user=None, action=ACTION, outcome=outcome, address=address)
        with suppress(StoreError):
            self._store.record([entry])
