"""What is known of clusters: drain marks, the last snapshots of the leader, and why jobs wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, delete, insert, select

from ray_multicluster_scheduler.model.access import AuditEntry
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, DrainMark
from ray_multicluster_scheduler.model.decision import Wait
from ray_multicluster_scheduler.store.leases import Leases
from ray_multicluster_scheduler.store.schema.prepared import Prepared
from ray_multicluster_scheduler.store.schema.rows import snapshot_from
from ray_multicluster_scheduler.store.schema.tables import drained_clusters, snapshots, waits
from ray_multicluster_scheduler.store.transactions import Transactions

_DRAINED = select(
    drained_clusters.c.cluster, drained_clusters.c.drained, drained_clusters.c.reason, drained_clusters.c.at
)
_SAVE_SNAPSHOTS = Prepared(insert(snapshots))


class Clusters:
    """Drain marks, and what the leader publishes for other processes.

    What is published wakes nobody: it is written all the time.
    """

    def __init__(self, transactions: Transactions, leases: Leases) -> None:
        self._transactions = transactions
        self._leases = leases

    def set_drained(
        self, cluster: str, *, drained: bool, reason: str, now: float, audit: AuditEntry | None = None
    ) -> None:
        """Mark a cluster so that it gets no new jobs, or unmark it; survives restarts.

        "Not drained" is kept too, because it overrules the configuration. A cluster that is drained already
        gets the new reason, and stays drained since the first call.
        """
        with self._transactions.write(audit=audit) as tx:
            known = _drained(tx).get(cluster)
            since = known.at if known is not None and known.drained and drained else now
            tx.execute(delete(drained_clusters).where(drained_clusters.c.cluster == cluster))
            mark = {"cluster": cluster, "drained": drained, "reason": reason, "at": since}
            tx.execute(insert(drained_clusters).values(mark))

    def drained(self) -> dict[str, DrainMark]:
        """Return the marks of `set_drained` by cluster name."""
        with self._transactions.read() as tx:
            return _drained(tx)

    def save_snapshots(self, new: Sequence[ClusterSnapshot], *, epoch: int) -> None:
        """Publish the leader's snapshots of these clusters, also for `explain`; those of others stay."""
        rows = [{"cluster": snapshot.name, "snapshot": snapshot} for snapshot in new]
        names = [snapshot.name for snapshot in new]
        with self._transactions.write(epoch=epoch, notify=False) as tx:
            if rows:
                tx.execute(delete(snapshots).where(snapshots.c.cluster.in_(names)))
                _SAVE_SNAPSHOTS.run(tx, rows)

    def load_snapshots(self, names: Sequence[str] | None = None) -> dict[str, ClusterSnapshot]:
        """Return the last published snapshots by cluster name: of these clusters, or of all."""
        statement = select(snapshots.c.cluster, snapshots.c.snapshot)
        if names is not None:
            statement = statement.where(snapshots.c.cluster.in_(names))
        with self._transactions.read() as tx:
            return {cluster: snapshot_from(data) for cluster, data in tx.execute(statement)}

    def publish_waits(self, new: Sequence[Wait], *, epoch: int) -> None:
        """Publish why jobs wait, in place of what was said before."""
        with self._transactions.write(epoch=epoch, notify=False) as tx:
            tx.execute(delete(waits))
            tx.execute(insert(waits).values(id=1, epoch=epoch, waits=[asdict(wait) for wait in new]))

    def published_waits(self, *, now: float) -> tuple[Wait, ...] | None:
        """Return why jobs wait, as the leader says; None: nobody leads, or the leader has just begun."""
        with self._transactions.read() as tx:
            leader = self._leases.current_in(tx, now=now)
            if leader is None:
                return None
            of_leader = select(waits.c.waits).where(waits.c.epoch == leader.epoch)
            found = tx.execute(of_leader).scalar_one_or_none()
            return None if found is None else tuple(Wait(**wait) for wait in found)


def _drained(tx: Connection) -> dict[str, DrainMark]:
    return {
        cluster: DrainMark(drained=drained, reason=reason, at=at)
        for cluster, drained, reason, at in tx.execute(_DRAINED)
    }
