"""Open the store of a configuration, wherever it is."""

from __future__ import annotations

from ray_multicluster_scheduler.config.installed import check_postgres
from ray_multicluster_scheduler.config.store_place import StorePlace
from ray_multicluster_scheduler.store.sql_store import SqlStore
from ray_multicluster_scheduler.store.sqlite.opening import open_store


def open_at(place: StorePlace, *, create: bool = True) -> SqlStore:
    """Open the store; with `create`, make it if there is none."""
    if place.url is None:
        return open_store(place.directory, create=create)
    check_postgres()
    # Imported here: a user of SQLite needs no driver for PostgreSQL.
    from ray_multicluster_scheduler.store.postgres.open_postgres import open_postgres_store  # noqa: PLC0415
    from ray_multicluster_scheduler.store.postgres.postgres_url import postgres_address  # noqa: PLC0415

    address = postgres_address(place.url, password_file=place.store_password_file)
    listen_at = (
        None
        if place.store_listen is None
        else postgres_address(place.store_listen, password_file=place.store_password_file)
    )
    return open_postgres_store(address, listen_at=listen_at, create=create)
