"""Tokens and the audit trail: each method is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, fields

from sqlalchemy import Connection, delete, exists, func, insert, select, update

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.access import AuditEntry, Token
from ray_multicluster_scheduler.store.schema.prepared import Prepared
from ray_multicluster_scheduler.store.schema.tables import audit_trail, meta, tokens

_TOKEN_COLUMNS = tuple(tokens.c[field.name] for field in fields(Token))
_AUDIT_COLUMNS = tuple(audit_trail.c[field.name] for field in fields(AuditEntry))
#: The store gives the id.
_WRITTEN = tuple(column.name for column in _AUDIT_COLUMNS if column.name != "id")
_WRITE_AUDIT = Prepared(insert(audit_trail))


class SqlAccess:
    """`ports.AccessStore`, on the database of a job store."""

    def __init__(
        self,
        read: Callable[[], AbstractContextManager[Connection]],
        write: Callable[[], AbstractContextManager[Connection]],
    ) -> None:
        self._read = read
        self._write = write

    def add_token(self, token: Token, *, audit: AuditEntry) -> None:
        """Keep a new token."""
        with self._write() as tx:
            tx.execute(insert(tokens).values(asdict(token)))
            write_audit(tx, [audit])

    def token(self, token_id: str) -> Token | None:
        """Return one token, valid or not."""
        with self._read() as tx:
            return _token(tx, token_id)

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens, oldest first."""
        with self._read() as tx:
            found = tx.execute(select(*_TOKEN_COLUMNS).order_by(tokens.c.created_at, tokens.c.id))
            return tuple(Token(**row) for row in found.mappings())

    def has_tokens(self) -> bool:
        """Tell whether there is or was any token."""
        with self._read() as tx:
            return bool(tx.scalar(select(exists().where(tokens.c.id.is_not(None)))))

    def revoke_token(self, token_id: str, *, now: float, audit: AuditEntry) -> Token:
        """Let a token be of no use from now on; one that is revoked stays so."""
        with self._write() as tx:
            found = _token(tx, token_id)
            if found is None:
                raise InvalidRequest(f"no token has the id {token_id!r}; `raymc token list` shows them all")
            if found.revoked_at is None:
                tx.execute(update(tokens).where(tokens.c.id == token_id).values(revoked_at=now))
            write_audit(tx, [audit])
            revoked = _token(tx, token_id)
        assert revoked is not None
        return revoked

    def touch_token(self, token_id: str, *, used_at: float) -> None:
        """Note when a token was last used."""
        with self._write() as tx:
            tx.execute(update(tokens).where(tokens.c.id == token_id).values(used_at=used_at))

    def job_key(self) -> bytes:
        """Return the key that proves the tokens of jobs: one for all who have opened this store."""
        with self._read() as tx:
            return bytes.fromhex(tx.execute(select(meta.c.job_key)).scalar_one())

    def record(self, entries: Sequence[AuditEntry]) -> None:
        """Write entries that belong to no other change."""
        with self._write() as tx:
            write_audit(tx, entries)

    def audit(
        self, *, user: str | None = None, before: int | None = None, limit: int
    ) -> tuple[AuditEntry, ...]:
        """Return entries, newest first, of all or of one user; `before` is an `id` that theirs is below."""
        statement = select(*_AUDIT_COLUMNS).order_by(audit_trail.c.id.desc()).limit(limit)
        if user is not None:
            statement = statement.where(audit_trail.c.user == user)
        if before is not None:
            statement = statement.where(audit_trail.c.id < before)
        with self._read() as tx:
            return tuple(AuditEntry(**row) for row in tx.execute(statement).mappings())


def write_audit(tx: Connection, entries: Sequence[AuditEntry]) -> None:
    """Write entries in the transaction of what they tell about."""
    _WRITE_AUDIT.run(tx, [{name: getattr(entry, name) for name in _WRITTEN} for entry in entries])


def prune_audit(tx: Connection, *, until: float, most: int, limit: int) -> int:
    """Remove entries up to a time, and all but the newest `most`, so many at once; return how many went."""
    newest = tx.scalar(select(func.max(audit_trail.c.id))) or 0
    old = (audit_trail.c.at <= until) | (audit_trail.c.id <= newest - most)
    ids = select(audit_trail.c.id).where(old).order_by(audit_trail.c.id).limit(limit)
    return tx.execute(delete(audit_trail).where(audit_trail.c.id.in_(ids))).rowcount


def _token(tx: Connection, token_id: str) -> Token | None:
    row = tx.execute(select(*_TOKEN_COLUMNS).where(tokens.c.id == token_id)).mappings().first()
    return None if row is None else Token(**row)
