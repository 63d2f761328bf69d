"""Packages that are kept in the database, and which user has uploaded which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

from sqlalchemy import ColumnElement, Connection, delete, exists, func, insert, or_, select, update

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.storage import StoredPackage, Upload
from ray_multicluster_scheduler.store.schema.tables import package_chunks, packages, uploads
from ray_multicluster_scheduler.store.transactions import Transactions

#: The time of last use of what can be discarded at once.
_LONG_AGO = 0.0
_UPLOAD_COLUMNS = tuple(uploads.c[field.name] for field in fields(Upload))


class Packages:
    """Packages in the store, written and read in chunks, so that no transaction is long.

    Others see a package when it is finished, not before: until then it has no name. What was begun and never
    finished, and what was removed, stays invisible until `discard` deletes it.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def begin(self, *, now: float) -> int:
        """Begin a package; return its id."""
        with self._transactions.write(notify=False) as tx:
            added = tx.execute(insert(packages).values(name=None, size=0, chunks=0, used_at=now))
            assert added.inserted_primary_key is not None
            package: int = added.inserted_primary_key[0]
            return package

    def append(self, package: int, content: bytes, *, now: float) -> None:
        """Add the next chunk; `StoreError` if the package was discarded or is finished."""
        unfinished = (packages.c.id == package, packages.c.name.is_(None))
        with self._transactions.write(notify=False) as tx:
            number = tx.scalar(select(packages.c.chunks).where(*unfinished))
            if number is None:
                raise _discarded()
            tx.execute(insert(package_chunks).values(package_id=package, number=number, content=content))
            grown = {"chunks": number + 1, "size": packages.c.size + len(content), "used_at": now}
            tx.execute(update(packages).where(packages.c.id == package).values(grown))

    def finish(self, package: int, name: str, *, now: float) -> None:
        """Make a package visible under its name. If there is one with this name, that one stays."""
        with self._transactions.write(notify=False) as tx:
            if _touch(tx, name, now=now):
                _abandon(tx, package)
                return
            unfinished = update(packages).where(packages.c.id == package, packages.c.name.is_(None))
            if tx.execute(unfinished.values(name=name, used_at=now)).rowcount == 0:
                raise _discarded()

    def abandon(self, package: int) -> None:
        """Let a package that was not finished be discarded at once."""
        with self._transactions.write(notify=False) as tx:
            _abandon(tx, package)

    def find(self, name: str) -> StoredPackage | None:
        """Return the package with this name."""
        columns = (packages.c.id, packages.c.size, packages.c.chunks, packages.c.used_at)
        with self._transactions.read() as tx:
            row = tx.execute(select(*columns).where(packages.c.name == name)).mappings().one_or_none()
            return None if row is None else StoredPackage(**row)

    def read_chunk(self, package: int, number: int) -> bytes | None:
        """Return one chunk; None: the package has been removed."""
        chunk = (package_chunks.c.package_id == package, package_chunks.c.number == number)
        with self._transactions.read() as tx:
            content: bytes | None = tx.scalar(select(package_chunks.c.content).where(*chunk))
            return content

    def touch(self, name: str, *, now: float) -> bool:
        """Note that a package is used; False: there is none with this name."""
        with self._transactions.write(notify=False) as tx:
            return _touch(tx, name, now=now)

    def last_used(self) -> dict[str, float]:
        """Return when each package was last used, by name."""
        found = select(packages.c.name, packages.c.used_at).where(packages.c.name.is_not(None))
        with self._transactions.read() as tx:
            return {row.name: row.used_at for row in tx.execute(found)}

    def remove(self, name: str, *, unused_since: float) -> bool:
        """Hide a package that was not used since; tell whether there was one."""
        unused = update(packages).where(packages.c.name == name, packages.c.used_at <= unused_since)
        with self._transactions.write(notify=False) as tx:
            return tx.execute(unused.values(name=None, used_at=_LONG_AGO)).rowcount > 0

    def discard(self, *, unused_since: float, limit: int) -> bool:
        """Delete up to `limit` chunks of what is invisible and was not written to since; True: call it again.

        What was removed or abandoned is deleted at any `unused_since`.
        """
        nameless = (packages.c.name.is_(None), packages.c.used_at <= unused_since)
        with self._transactions.write(notify=False) as tx:
            package = tx.scalar(select(packages.c.id).where(*nameless).order_by(packages.c.id).limit(1))
            if package is None:
                return False
            of_package = package_chunks.c.package_id == package
            numbers = tx.scalars(select(package_chunks.c.number).where(of_package).limit(limit)).all()
            tx.execute(delete(package_chunks).where(of_package, package_chunks.c.number.in_(numbers)))
            if len(numbers) < limit:
                tx.execute(delete(packages).where(packages.c.id == package))
            return True


class Uploads:
    """Which user has uploaded which package. Each user has names of their own."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def save(self, new: Sequence[Upload]) -> None:
        """Store uploads, all or none; each replaces what its user had under this name."""
        with self._transactions.write(notify=False) as tx:
            for upload in new:
                tx.execute(delete(uploads).where(*_is_upload(upload.user, upload.name)))
                tx.execute(insert(uploads).values(asdict(upload)))

    def find(self, user: str, name: str) -> Upload | None:
        """Return the upload of a user with this name, or else one with this content."""
        named = or_(uploads.c.name == name, uploads.c.content == name)
        with self._transactions.read() as tx:
            rows = tx.execute(select(*_UPLOAD_COLUMNS).where(uploads.c.user == user, named)).mappings()
            found = [Upload(**row) for row in rows]
        return next((upload for upload in found if upload.name == name), found[0] if found else None)

    def of_user(self, user: str) -> tuple[Upload, ...]:
        """Return the uploads of a user, the least recently used first."""
        found = select(*_UPLOAD_COLUMNS).where(uploads.c.user == user)
        with self._transactions.read() as tx:
            rows = tx.execute(found.order_by(uploads.c.used_at, uploads.c.name)).mappings()
            return tuple(Upload(**row) for row in rows)

    def touch(self, user: str, name: str, *, now: float) -> None:
        """Note that an upload is used; nothing happens if there is none."""
        with self._transactions.write(notify=False) as tx:
            tx.execute(update(uploads).where(*_is_upload(user, name)).values(used_at=now))

    def forget(self, upload: Upload) -> bool:
        """Remove an upload; tell whether no other one, of any user, refers to its content."""
        with self._transactions.write(notify=False) as tx:
            tx.execute(delete(uploads).where(*_is_upload(upload.user, upload.name)))
            return not tx.scalar(select(exists().where(uploads.c.content == upload.content)))


def stored_bytes(tx: Connection) -> int:
    """Return the size of all packages, finished or not."""
    return int(tx.scalar(select(func.coalesce(func.sum(packages.c.size), 0))) or 0)


def _touch(tx: Connection, name: str, *, now: float) -> bool:
    return tx.execute(update(packages).where(packages.c.name == name).values(used_at=now)).rowcount > 0


def _abandon(tx: Connection, package: int) -> None:
    unfinished = update(packages).where(packages.c.id == package, packages.c.name.is_(None))
    tx.execute(unfinished.values(used_at=_LONG_AGO))


def _is_upload(user: str, name: str) -> tuple[ColumnElement[bool], ...]:
    return uploads.c.user == user, uploads.c.name == name


def _discarded() -> StoreError:
    return StoreError(
        "writing a package has taken so long that its first part was removed meanwhile; try again"
    )
