"""The address of a PostgreSQL store: `postgresql://user@host:5432/database?schema=raymc`.

The password is never part of what is shown. It may come from a file, so that it stands in no configuration.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from ray_multicluster_scheduler.errors import StoreError

log = logging.getLogger(__name__)

DEFAULT_SCHEMA = "raymc"
#: Names that need no quotes, so that they can stand in any statement.
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
#: What libpq would take in the query too.
_SECRET = frozenset({"password", "sslpassword"})
_EXAMPLE = "postgresql://user@host:5432/database"
#: A machine that vanishes is noticed within this time, not within TCP's two hours.
_NETWORK = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Where a store is, and how to log in there."""

    url: URL
    schema: str

    def __str__(self) -> str:
        """Return the address without its password."""
        shown = URL.create(
            self.url.drivername, self.url.username, None, self.url.host, self.url.port, self.url.database
        )
        return f"{shown}?schema={self.schema}"

    def __repr__(self) -> str:
        """Return the same: a password must not get into a traceback."""
        return f"PostgresAddress({self})"

    @property
    def connection_string(self) -> str:
        """Return what the driver connects with. It holds the password.

        Not as a URL: libpq and SQLAlchemy do not agree on how a space is written in one, and libpq's message
        about it would show the password.
        """
        url = self.url
        query = {
            name: value if isinstance(value, str) else ",".join(value) for name, value in url.query.items()
        }
        named = {"user": url.username, "password": url.password, "host": url.host, "dbname": url.database}
        given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        if url.port is not None:
            given["port"] = url.port
        return make_conninfo("", **{**_NETWORK, **query, **given})


def postgres_address(text: str, *, password_file: Path | None = None) -> PostgresAddress:
    """Read an address; raises `StoreError` that shows no password."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError(f"the address of the job store cannot be read; write {_EXAMPLE}") from None
    if url.get_backend_name() not in {"postgresql", "postgres"} or not url.database:
        raise StoreError(f"the address of the job store names no PostgreSQL database; write {_EXAMPLE}")
    if url.password or _SECRET & url.query.keys():
        raise StoreError(
            "the address of the job store holds a password, which others may read; put it into a file and "
            "name that as store_password_file, or use PGPASSFILE or PGPASSWORD"
        )
    schema = url.query.get("schema", DEFAULT_SCHEMA)
    if not isinstance(schema, str) or not _SCHEMA.fullmatch(schema):
        raise StoreError(
            f"the schema of the job store is {schema!r}; use small letters, digits and underscores only"
        )
    if password_file is not None:
        url = url.set(password=_read(password_file))
    return PostgresAddress(url.set(drivername="postgresql").difference_update_query(["schema"]), schema)


def _read(path: Path) -> str:
    try:
        status = path.stat()
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:
            log.warning("others may read the password of the job store in %s: chmod 600 %s", path, path)
        return path.read_text().rstrip("\n")
    except OSError as problem:
        raise StoreError(
            f"the password of the job store cannot be read from {path}: {problem.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise StoreError(f"the password of the job store cannot be read from {path}: it is no text") from None
