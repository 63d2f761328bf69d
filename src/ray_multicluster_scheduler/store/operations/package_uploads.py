"""Which user has uploaded which package, under which name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

from sqlalchemy import Connection, delete, exists, insert, or_, select, update

from ray_multicluster_scheduler.model.package_records import Upload
from ray_multicluster_scheduler.store.schema.tables import uploads

_COLUMNS = tuple(uploads.c[field.name] for field in fields(Upload))


def save(tx: Connection, new: Sequence[Upload]) -> None:
    """Store uploads; each replaces what its user had under this name."""
    for upload in new:
        tx.execute(delete(uploads).where(uploads.c.user == upload.user, uploads.c.name == upload.name))
        tx.execute(insert(uploads).values(asdict(upload)))


def find(tx: Connection, user: str, name: str) -> Upload | None:
    """Return the upload of a user with this name, or else one with this content."""
    named = or_(uploads.c.name == name, uploads.c.content == name)
    rows = tx.execute(select(*_COLUMNS).where(uploads.c.user == user, named)).mappings()
    found = [Upload(**row) for row in rows]
    return next((upload for upload in found if upload.name == name), found[0] if found else None)


def list_uploads(tx: Connection, user: str) -> tuple[Upload, ...]:
    """Return the uploads of a user, the least recently used first."""
    found = select(*_COLUMNS).where(uploads.c.user == user).order_by(uploads.c.used_at, uploads.c.name)
    return tuple(Upload(**row) for row in tx.execute(found).mappings())


def touch(tx: Connection, user: str, name: str, *, now: float) -> None:
    """Note that an upload is used."""
    mine = update(uploads).where(uploads.c.user == user, uploads.c.name == name)
    tx.execute(mine.values(used_at=now))


def forget(tx: Connection, upload: Upload) -> bool:
    """Remove an upload; tell whether no other one refers to its content."""
    tx.execute(delete(uploads).where(uploads.c.user == upload.user, uploads.c.name == upload.name))
    return not tx.scalar(select(exists().where(uploads.c.content == upload.content)))
