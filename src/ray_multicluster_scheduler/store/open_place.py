"""Open the store of a configuration, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ray_multicluster_scheduler.config.installed import check_postgres
from ray_multicluster_scheduler.config.store_place import StorePlace
from ray_multicluster_scheduler.store.backend import Database
from ray_multicluster_scheduler.store.sqlite.opening import (
    existing_directory,
    existing_file,
    new_directory,
    new_file,
    open_store,
)
from ray_multicluster_scheduler.store.store import Store

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store.postgres.database import PostgresAddress


def open_at(place: StorePlace, *, create: bool = True) -> Store:
    """Open the store; with `create`, make it if there is none."""
    if place.url is None:
        return open_store(place.directory, create=create)
    address = _address(place, place.url)
    from ray_multicluster_scheduler.store.postgres.opening import open_postgres_store  # noqa: PLC0415

    listen_at = None if place.store_listen is None else _address(place, place.store_listen)
    return open_postgres_store(address, listen_at=listen_at, create=create)


def shown(place: StorePlace) -> str:
    """Return the place as people may see it, without a password."""
    return str(place.directory) if place.url is None else str(_address(place, place.url))


@contextmanager
def existing_database(place: StorePlace) -> Iterator[Database]:
    """Open the database of a store as it is: it is neither created nor brought to another schema."""
    if place.url is None:
        with existing_directory(place.directory) as files:
            yield files
        return
    address = _address(place, place.url)
    from ray_multicluster_scheduler.store.postgres.opening import existing_schema  # noqa: PLC0415

    with existing_schema(address) as server:
        yield server


@contextmanager
def new_database(place: StorePlace) -> Iterator[tuple[Database, Connection]]:
    """Make a store with empty tables, where no store is. It is there when the block has ended well."""
    if place.url is None:
        with new_directory(place.directory) as files:
            yield files
        return
    address = _address(place, place.url)
    from ray_multicluster_scheduler.store.postgres.opening import new_schema  # noqa: PLC0415

    with new_schema(address) as server:
        yield server


def existing_backup(path: Path) -> AbstractContextManager[Database]:
    """Open the file of a backup to read it, with the schema of this version."""
    return existing_file(path)


@contextmanager
def new_backup(path: Path, *, replace: bool) -> Iterator[tuple[Database, Connection]]:
    """Make the file of a backup with empty tables. It is there when the block has ended well."""
    with new_file(path, replace=replace) as opened:
        yield opened


def _address(place: StorePlace, url: str) -> PostgresAddress:
    check_postgres()
    # Imported here, as above: a user of SQLite needs no driver for PostgreSQL.
    from ray_multicluster_scheduler.store.postgres.database import postgres_address  # noqa: PLC0415

    return postgres_address(url, password_file=place.store_password_file)
