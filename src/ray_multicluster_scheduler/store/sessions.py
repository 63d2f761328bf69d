"""Ray Client sessions: what the servers note about them, beside the jobs that they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Connection, insert, select, update

from ray_multicluster_scheduler.model.execution import Session
from ray_multicluster_scheduler.store.schema.prepared import ForIds
from ray_multicluster_scheduler.store.schema.tables import jobs, sessions
from ray_multicluster_scheduler.store.transactions import Transactions
from ray_multicluster_scheduler.text import storable

_COLUMNS = tuple(sessions.c[field.name] for field in fields(Session))
_READ = ForIds(lambda ids: select(*_COLUMNS).where(sessions.c.submission_id.in_(ids)))


class Sessions:
    """What servers know about Ray Client sessions. A session is stored when its job is accepted."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def update(self, submission_ids: Sequence[str], **values: Any) -> None:
        """Set fields of sessions; unknown ids are ignored."""
        kept = {name: storable(value) if isinstance(value, str) else value for name, value in values.items()}
        with self._transactions.write(notify=False) as tx:
            tx.execute(update(sessions).where(sessions.c.submission_id.in_(submission_ids)).values(kept))

    def open(self) -> tuple[Session, ...]:
        """Return the sessions that have not ended, oldest first."""
        found = select(*_COLUMNS).join(jobs).where(jobs.c.ended_at.is_(None)).order_by(jobs.c.seq)
        with self._transactions.read() as tx:
            return tuple(Session(**row) for row in tx.execute(found).mappings())

    def get_many(self, submission_ids: Sequence[str]) -> dict[str, Session]:
        """Return those of these sessions that there are, by their ids."""
        names = [column.name for column in _COLUMNS]
        with self._transactions.read() as tx:
            rows = _READ.rows(tx, submission_ids)
        found = (Session(**dict(zip(names, row, strict=True))) for row in rows)
        return {session.submission_id: session for session in found}


def add_sessions(tx: Connection, new: Sequence[Session]) -> None:
    """Store new sessions in the transaction that accepts their jobs."""
    if new:
        tx.execute(insert(sessions), [asdict(session) for session in new])
