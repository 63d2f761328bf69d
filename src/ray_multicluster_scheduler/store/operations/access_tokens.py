"""Tokens of the server: who may use it."""

from __future__ import annotations

from dataclasses import asdict, fields

from sqlalchemy import Connection, exists, insert, select, update

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.access import Token
from ray_multicluster_scheduler.store.schema.tables import tokens

_TOKEN_COLUMNS = tuple(tokens.c[field.name] for field in fields(Token))


def add_token(tx: Connection, token: Token) -> None:
    """Keep a new token."""
    tx.execute(insert(tokens).values(asdict(token)))


def get_token(tx: Connection, token_id: str) -> Token | None:
    """Return one token, valid or not."""
    row = tx.execute(select(*_TOKEN_COLUMNS).where(tokens.c.id == token_id)).mappings().first()
    return None if row is None else Token(**row)


def list_tokens(tx: Connection) -> tuple[Token, ...]:
    """Return all tokens, oldest first."""
    rows = tx.execute(select(*_TOKEN_COLUMNS).order_by(tokens.c.created_at, tokens.c.id)).mappings()
    return tuple(Token(**row) for row in rows)


def has_tokens(tx: Connection) -> bool:
    """Tell whether there is or was any token."""
    return bool(tx.scalar(select(exists().where(tokens.c.id.is_not(None)))))


def revoke_token(tx: Connection, token_id: str, *, now: float) -> Token:
    """Make a token invalid from now on. A token that is already revoked keeps its time of revocation."""
    token = get_token(tx, token_id)
    if token is None:
        raise InvalidRequest(f"no token has the id {token_id!r}; `raymc token list` shows them all")
    if token.revoked_at is None:
        tx.execute(update(tokens).where(tokens.c.id == token_id).values(revoked_at=now))
    revoked = get_token(tx, token_id)
    assert revoked is not None
    return revoked


def touch_token(tx: Connection, token_id: str, *, used_at: float) -> None:
    """Note when a token was last used."""
    tx.execute(update(tokens).where(tokens.c.id == token_id).values(used_at=used_at))
