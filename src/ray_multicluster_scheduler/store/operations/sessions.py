"""Ray Client sessions: what the servers note about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Connection, insert, select, update

from ray_multicluster_scheduler.model.client_session import Session
from ray_multicluster_scheduler.store.schema.prepared import ForIds
from ray_multicluster_scheduler.store.schema.tables import jobs, sessions
from ray_multicluster_scheduler.text.storable import storable

_COLUMNS = tuple(sessions.c[field.name] for field in fields(Session))
_READ = ForIds(lambda ids: select(*_COLUMNS).where(sessions.c.submission_id.in_(ids)))


def add_sessions(tx: Connection, new: Sequence[Session]) -> None:
    """Store new sessions."""
    if new:
        tx.execute(insert(sessions), [asdict(session) for session in new])


def update_sessions(tx: Connection, submission_ids: Sequence[str], values: dict[str, Any]) -> None:
    """Set fields of sessions; unknown ids are ignored."""
    kept = {name: storable(value) if isinstance(value, str) else value for name, value in values.items()}
    tx.execute(update(sessions).where(sessions.c.submission_id.in_(submission_ids)).values(kept))


def open_sessions(tx: Connection) -> tuple[Session, ...]:
    """Return the sessions that have not ended, oldest first."""
    found = select(*_COLUMNS).join(jobs).where(jobs.c.ended_at.is_(None)).order_by(jobs.c.seq)
    return tuple(Session(**row) for row in tx.execute(found).mappings())


def get_sessions(tx: Connection, submission_ids: Sequence[str]) -> dict[str, Session]:
    """Return those of these sessions that there are."""
    names = [column.name for column in _COLUMNS]
    rows = (Session(**dict(zip(names, row, strict=True))) for row in _READ.rows(tx, submission_ids))
    return {session.submission_id: session for session in rows}
