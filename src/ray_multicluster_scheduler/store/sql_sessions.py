"""The session store. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray_multicluster_scheduler.model.client_session import Session
from ray_multicluster_scheduler.store.operations import sessions
from ray_multicluster_scheduler.store.transactions import Transactions


class SqlSessions:
    """`store_ports.SessionStore` on the database of a job store."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def update(self, submission_ids: Sequence[str], **values: Any) -> None:
        """Set fields of sessions; unknown ids are ignored."""
        with self._transactions.write(notify=False) as tx:
            sessions.update_sessions(tx, submission_ids, values)

    def open(self) -> tuple[Session, ...]:
        """Return the sessions that have not ended, oldest first."""
        with self._transactions.read() as tx:
            return sessions.open_sessions(tx)

    def get_many(self, submission_ids: Sequence[str]) -> dict[str, Session]:
        """Return those of these sessions that there are, by their ids."""
        with self._transactions.read() as tx:
            return sessions.get_sessions(tx, submission_ids)
