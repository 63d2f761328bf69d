"""The audit trail: who did what. Each entry is written in the transaction that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from sqlalchemy import (
    Connection,
    delete,
    func,
    insert,
    select,
)

from ray_multicluster_scheduler.model.access import AuditEntry
from ray_multicluster_scheduler.store.schema.prepared import Prepared
from ray_multicluster_scheduler.store.schema.tables import (
    audit_trail,
)

_AUDIT_COLUMNS = tuple(audit_trail.c[field.name] for field in fields(AuditEntry))
#: The database assigns the id.
_WRITTEN_COLUMNS = tuple(column.name for column in _AUDIT_COLUMNS if column.name != "id")
_WRITE_AUDIT = Prepared(insert(audit_trail))


def write_audit(tx: Connection, entries: Sequence[AuditEntry]) -> None:
    """Write entries in the transaction that they are about."""
    _WRITE_AUDIT.run(tx, [{name: getattr(entry, name) for name in _WRITTEN_COLUMNS} for entry in entries])


def prune_audit(tx: Connection, *, until: float, most: int, limit: int) -> int:
    """Remove entries up to the time `until`, and all but the newest `most`: at most `limit` at once."""
    newest = tx.scalar(select(func.max(audit_trail.c.id))) or 0
    old = (audit_trail.c.at <= until) | (audit_trail.c.id <= newest - most)
    ids = select(audit_trail.c.id).where(old).order_by(audit_trail.c.id).limit(limit)
    return tx.execute(delete(audit_trail).where(audit_trail.c.id.in_(ids))).rowcount


def list_audit(tx: Connection, *, user: str | None, before: int | None, limit: int) -> tuple[AuditEntry, ...]:
    """Return entries, newest first, of all users or of one; only those with an `id` below `before`."""
    statement = select(*_AUDIT_COLUMNS).order_by(audit_trail.c.id.desc()).limit(limit)
    if user is not None:
        statement = statement.where(audit_trail.c.user == user)
    if before is not None:
        statement = statement.where(audit_trail.c.id < before)
    return tuple(AuditEntry(**row) for row in tx.execute(statement).mappings())
