"""Who may use the server, and who did what: tokens, the key of job tokens, and the audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

from sqlalchemy import Connection, delete, exists, func, insert, select, update

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.access import AuditEntry, StoredToken, Token
from ray_multicluster_scheduler.store.schema.tables import audit_trail, meta, tokens
from ray_multicluster_scheduler.store.transactions import Transactions, write_audit

_TOKEN_COLUMNS = tuple(tokens.c[field.name] for field in fields(Token))
_AUDIT_COLUMNS = tuple(audit_trail.c[field.name] for field in fields(AuditEntry))


class Access:
    """Tokens and the audit trail. A change and its audit entry are one transaction."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def add_token(self, token: Token, digest: str, *, audit: AuditEntry) -> None:
        """Store a new token, with what verifies it."""
        with self._transactions.write(notify=False, audit=audit) as tx:
            tx.execute(insert(tokens).values(digest=digest, **asdict(token)))

    def token(self, token_id: str) -> StoredToken | None:
        """Return one token, valid or not, with what verifies it."""
        statement = select(*_TOKEN_COLUMNS, tokens.c.digest).where(tokens.c.id == token_id)
        with self._transactions.read() as tx:
            row = tx.execute(statement).mappings().first()
            return None if row is None else StoredToken(**row)

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens, oldest first."""
        oldest_first = select(*_TOKEN_COLUMNS).order_by(tokens.c.created_at, tokens.c.id)
        with self._transactions.read() as tx:
            return tuple(Token(**row) for row in tx.execute(oldest_first).mappings())

    def has_tokens(self) -> bool:
        """Tell whether any token was ever created."""
        with self._transactions.read() as tx:
            return bool(tx.scalar(select(exists().where(tokens.c.id.is_not(None)))))

    def revoke_token(self, token_id: str, *, now: float, audit: AuditEntry) -> Token:
        """Revoke a token; `InvalidRequest` if there is none with this id.

        A token that is already revoked keeps its time of revocation.
        """
        with self._transactions.write(notify=False, audit=audit) as tx:
            unrevoked = (tokens.c.id == token_id) & tokens.c.revoked_at.is_(None)
            tx.execute(update(tokens).where(unrevoked).values(revoked_at=now))
            row = tx.execute(select(*_TOKEN_COLUMNS).where(tokens.c.id == token_id)).mappings().first()
            if row is None:
                raise InvalidRequest(f"no token has the id {token_id!r}; `raymc token list` shows them all")
            return Token(**row)

    def touch_token(self, token_id: str, *, used_at: float) -> None:
        """Note when a token was last used."""
        with self._transactions.write(notify=False) as tx:
            tx.execute(update(tokens).where(tokens.c.id == token_id).values(used_at=used_at))

    def job_key(self) -> bytes:
        """Return the key that signs the tokens of jobs: the same for all processes on this store."""
        with self._transactions.read() as tx:
            return bytes.fromhex(tx.execute(select(meta.c.job_key)).scalar_one())

    def record(self, entries: Sequence[AuditEntry]) -> None:
        """Write entries that do not belong to another change."""
        with self._transactions.write(notify=False) as tx:
            write_audit(tx, entries)

    def audit(
        self, *, user: str | None = None, before: int | None = None, limit: int
    ) -> tuple[AuditEntry, ...]:
        """Return entries, newest first, of all users or of one; only those with an `id` below `before`."""
        statement = select(*_AUDIT_COLUMNS).order_by(audit_trail.c.id.desc()).limit(limit)
        if user is not None:
            statement = statement.where(audit_trail.c.user == user)
        if before is not None:
            statement = statement.where(audit_trail.c.id < before)
        with self._transactions.read() as tx:
            return tuple(AuditEntry(**row) for row in tx.execute(statement).mappings())


def prune_audit(tx: Connection, *, until: float, most: int, limit: int) -> int:
    """Remove entries up to the time `until`, and all but the newest `most`: at most `limit` at once."""
    newest = tx.scalar(select(func.max(audit_trail.c.id))) or 0
    old = (audit_trail.c.at <= until) | (audit_trail.c.id <= newest - most)
    ids = select(audit_trail.c.id).where(old).order_by(audit_trail.c.id).limit(limit)
    return tx.execute(delete(audit_trail).where(audit_trail.c.id.in_(ids))).rowcount
