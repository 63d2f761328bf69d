"""The access store: tokens and the audit trail. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from ray_multicluster_scheduler.model.access import AuditEntry, Token
from ray_multicluster_scheduler.store.operations import access_tokens, audit_trail, store_identity
from ray_multicluster_scheduler.store.transactions import Transactions


class SqlAccess:
    """`store_ports.AccessStore` on the database of a job store."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def add_token(self, token: Token, *, audit: AuditEntry) -> None:
        """Keep a new token."""
        with self._transactions.write(notify=False, audit=audit) as tx:
            access_tokens.add_token(tx, token)

    def token(self, token_id: str) -> Token | None:
        """Return one token, valid or not."""
        with self._transactions.read() as tx:
            return access_tokens.get_token(tx, token_id)

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens, oldest first."""
        with self._transactions.read() as tx:
            return access_tokens.list_tokens(tx)

    def has_tokens(self) -> bool:
        """Tell whether there is or was any token."""
        with self._transactions.read() as tx:
            return access_tokens.has_tokens(tx)

    def revoke_token(self, token_id: str, *, now: float, audit: AuditEntry) -> Token:
        """Make a token invalid from now on; `InvalidRequest` when there is none with this id."""
        with self._transactions.write(notify=False, audit=audit) as tx:
            return access_tokens.revoke_token(tx, token_id, now=now)

    def touch_token(self, token_id: str, *, used_at: float) -> None:
        """Note when a token was last used."""
        with self._transactions.write(notify=False) as tx:
            access_tokens.touch_token(tx, token_id, used_at=used_at)

    def job_key(self) -> bytes:
        """Return the key that proves the tokens of jobs. Every process on this store gets the same one."""
        with self._transactions.read() as tx:
            return store_identity.read_job_key(tx)

    def record(self, entries: Sequence[AuditEntry]) -> None:
        """Write entries that belong to no other change."""
        with self._transactions.write(notify=False) as tx:
            audit_trail.write_audit(tx, entries)

    def audit(
        self, *, user: str | None = None, before: int | None = None, limit: int
    ) -> tuple[AuditEntry, ...]:
        """Return entries, newest first, of all users or of one; only those with an `id` below `before`."""
        with self._transactions.read() as tx:
            return audit_trail.list_audit(tx, user=user, before=before, limit=limit)
