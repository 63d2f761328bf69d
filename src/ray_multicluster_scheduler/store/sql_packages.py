"""The bytes of packages in the database. Each method is one transaction."""

from __future__ import annotations

from ray_multicluster_scheduler.model.package_records import StoredPackage
from ray_multicluster_scheduler.store.operations import package_chunks
from ray_multicluster_scheduler.store.transactions import Transactions


class SqlPackages:
    """`store_ports.PackageChunks` on the database of a job store."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def begin(self, *, now: float) -> int:
        """Begin a package, which nobody sees before `finish`; return its id."""
        with self._transactions.write(notify=False) as tx:
            return package_chunks.begin(tx, now=now)

    def append(self, package: int, content: bytes, *, now: float) -> None:
        """Add the next chunk."""
        with self._transactions.write(notify=False) as tx:
            package_chunks.append(tx, package, content, now=now)

    def finish(self, package: int, name: str, *, now: float) -> None:
        """Make a package visible under its name. If there is one with this name, that one stays."""
        with self._transactions.write(notify=False) as tx:
            package_chunks.finish(tx, package, name, now=now)

    def abandon(self, package: int) -> None:
        """Let a package that was not finished be discarded."""
        with self._transactions.write(notify=False) as tx:
            package_chunks.abandon(tx, package)

    def find(self, name: str) -> StoredPackage | None:
        """Return the package with this name."""
        with self._transactions.read() as tx:
            return package_chunks.find(tx, name)

    def read_chunk(self, package: int, number: int) -> bytes | None:
        """Return one chunk; None: the package has been removed."""
        with self._transactions.read() as tx:
            return package_chunks.read_chunk(tx, package, number)

    def touch(self, name: str, *, now: float) -> bool:
        """Note that a package is used; False: there is none with this name."""
        with self._transactions.write(notify=False) as tx:
            return package_chunks.touch(tx, name, now=now)

    def last_used(self) -> dict[str, float]:
        """Return when each package was last used, by name."""
        with self._transactions.read() as tx:
            return package_chunks.last_used(tx)

    def remove(self, name: str, *, unused_since: float) -> bool:
        """Hide a package that was not used since; tell whether there was one."""
        with self._transactions.write(notify=False) as tx:
            return package_chunks.remove(tx, name, unused_since=unused_since)

    def discard(self, *, unused_since: float, limit: int) -> bool:
        """Delete up to `limit` chunks of hidden or unfinished packages; tell whether to call it again."""
        with self._transactions.write(notify=False) as tx:
            return package_chunks.discard(tx, unused_since=unused_since, limit=limit)
