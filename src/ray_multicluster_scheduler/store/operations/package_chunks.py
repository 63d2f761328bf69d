"""The bytes of packages, in chunks. A package has no name, and so nobody sees it, until it is complete."""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, insert, select, update

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.package_records import StoredPackage
from ray_multicluster_scheduler.store.schema.tables import package_chunks, packages

#: The time of last use of what can be discarded at once.
_LONG_AGO = 0.0


def begin(tx: Connection, *, now: float) -> int:
    """Add a package without bytes and without a name; return its id."""
    added = tx.execute(insert(packages).values(name=None, size=0, chunks=0, used_at=now))
    assert added.inserted_primary_key is not None
    package: int = added.inserted_primary_key[0]
    return package


def append(tx: Connection, package: int, content: bytes, *, now: float) -> None:
    """Add the next chunk to a package that is not complete."""
    number = tx.scalar(select(packages.c.chunks).where(packages.c.id == package, packages.c.name.is_(None)))
    if number is None:
        raise _discarded()
    tx.execute(insert(package_chunks).values(package_id=package, number=number, content=content))
    grown = {"chunks": number + 1, "size": packages.c.size + len(content), "used_at": now}
    tx.execute(update(packages).where(packages.c.id == package).values(grown))


def finish(tx: Connection, package: int, name: str, *, now: float) -> None:
    """Give a package its name. If another one has this name already, that one stays."""
    if touch(tx, name, now=now):
        abandon(tx, package)
        return
    incomplete = update(packages).where(packages.c.id == package, packages.c.name.is_(None))
    if tx.execute(incomplete.values(name=name, used_at=now)).rowcount == 0:
        raise _discarded()


def abandon(tx: Connection, package: int) -> None:
    """Let an incomplete package be discarded."""
    incomplete = update(packages).where(packages.c.id == package, packages.c.name.is_(None))
    tx.execute(incomplete.values(used_at=_LONG_AGO))


def find(tx: Connection, name: str) -> StoredPackage | None:
    """Return the package with this name."""
    columns = (packages.c.id, packages.c.size, packages.c.chunks, packages.c.used_at)
    row = tx.execute(select(*columns).where(packages.c.name == name)).mappings().one_or_none()
    return None if row is None else StoredPackage(**row)


def read_chunk(tx: Connection, package: int, number: int) -> bytes | None:
    """Return one chunk; None: the package has been removed."""
    chunk = (package_chunks.c.package_id == package, package_chunks.c.number == number)
    content: bytes | None = tx.scalar(select(package_chunks.c.content).where(*chunk))
    return content


def touch(tx: Connection, name: str, *, now: float) -> bool:
    """Note that a package is used; False: there is none with this name."""
    return tx.execute(update(packages).where(packages.c.name == name).values(used_at=now)).rowcount > 0


def last_used(tx: Connection) -> dict[str, float]:
    """Return when each package was last used."""
    found = select(packages.c.name, packages.c.used_at).where(packages.c.name.is_not(None))
    return {row.name: row.used_at for row in tx.execute(found)}


def remove(tx: Connection, name: str, *, unused_since: float) -> bool:
    """Take the name from a package that was not used since, so that it can be discarded."""
    unused = update(packages).where(packages.c.name == name, packages.c.used_at <= unused_since)
    return tx.execute(unused.values(name=None, used_at=_LONG_AGO)).rowcount > 0


def discard(tx: Connection, *, unused_since: float, limit: int) -> bool:
    """Delete up to `limit` chunks of one nameless package; tell whether to call it again."""
    nameless = (packages.c.name.is_(None), packages.c.used_at <= unused_since)
    package = tx.scalar(select(packages.c.id).where(*nameless).order_by(packages.c.id).limit(1))
    if package is None:
        return False
    of_package = package_chunks.c.package_id == package
    numbers = tx.scalars(select(package_chunks.c.number).where(of_package).limit(limit)).all()
    tx.execute(delete(package_chunks).where(of_package, package_chunks.c.number.in_(numbers)))
    if len(numbers) < limit:
        tx.execute(delete(packages).where(packages.c.id == package))
    return True


def stored_bytes(tx: Connection) -> int:
    """Return the size of all packages, complete or not."""
    return int(tx.scalar(select(func.coalesce(func.sum(packages.c.size), 0))) or 0)


def _discarded() -> StoreError:
    return StoreError(
        "writing a package has taken so long that its first part was removed meanwhile; try again"
    )
