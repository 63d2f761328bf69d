"""The uploads of users. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from ray_multicluster_scheduler.model.package_records import Upload
from ray_multicluster_scheduler.store.operations import package_uploads
from ray_multicluster_scheduler.store.transactions import Transactions


class SqlUploads:
    """`store_ports.UploadStore` on the database of a job store."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def save(self, uploads: Sequence[Upload]) -> None:
        """Store uploads, all or none; each replaces what its user had under this name."""
        with self._transactions.write(notify=False) as tx:
            package_uploads.save(tx, uploads)

    def find(self, user: str, name: str) -> Upload | None:
        """Return the upload of a user with this name, or else one with this content."""
        with self._transactions.read() as tx:
            return package_uploads.find(tx, user, name)

    def of_user(self, user: str) -> tuple[Upload, ...]:
        """Return the uploads of a user, the least recently used first."""
        with self._transactions.read() as tx:
            return package_uploads.list_uploads(tx, user)

    def touch(self, user: str, name: str, *, now: float) -> None:
        """Note that an upload is used; nothing happens if there is none."""
        with self._transactions.write(notify=False) as tx:
            package_uploads.touch(tx, user, name, now=now)

    def forget(self, upload: Upload) -> bool:
        """Remove an upload; tell whether no other one, of any user, refers to its content."""
        with self._transactions.write(notify=False) as tx:
            return package_uploads.forget(tx, upload)
