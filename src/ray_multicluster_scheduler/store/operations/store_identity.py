"""The identity of a store: an id and a key, both made once when the store is created."""

from __future__ import annotations

import secrets
import time
import uuid

from sqlalchemy import Connection, insert, select

from ray_multicluster_scheduler.store.schema.tables import lease, meta

#: As long as the output of the HMAC that proves a token.
JOB_KEY_BYTES = 32


def create_identity(tx: Connection) -> None:
    """Write the identity of a new store, and the row of its lease, which nobody holds."""
    tx.execute(
        insert(meta).values(
            id=1,
            store_id=uuid.uuid4().hex,
            created_at=time.time(),
            changes=0,
            job_key=secrets.token_hex(JOB_KEY_BYTES),
        )
    )
    tx.execute(insert(lease).values(id=1, holder=None, epoch=0, expires_at=0.0))


def read_store_id(tx: Connection) -> str:
    """Return the id of the store."""
    store_id: str = tx.execute(select(meta.c.store_id)).scalar_one()
    return store_id


def read_job_key(tx: Connection) -> bytes:
    """Return the key that proves the tokens of jobs."""
    return bytes.fromhex(tx.execute(select(meta.c.job_key)).scalar_one())
