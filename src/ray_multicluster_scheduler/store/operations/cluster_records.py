"""Records of clusters: drain marks, the last snapshots of the leader, and why jobs wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, delete, insert, select

from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, DrainMark
from ray_multicluster_scheduler.model.decision import Wait
from ray_multicluster_scheduler.store.schema.prepared import Prepared
from ray_multicluster_scheduler.store.schema.rows import snapshot_from
from ray_multicluster_scheduler.store.schema.tables import drained_clusters, snapshots, waits

_DRAINED = select(
    drained_clusters.c.cluster, drained_clusters.c.drained, drained_clusters.c.reason, drained_clusters.c.at
)
_SAVE_SNAPSHOTS = Prepared(insert(snapshots))


def set_drained(tx: Connection, cluster: str, *, drained: bool, reason: str, now: float) -> None:
    """Mark or unmark a cluster; "not drained" is kept too, because it overrules the configuration."""
    known = list_drained(tx).get(cluster)
    # A cluster that is drained already stays so since then: the call gives it another reason.
    since = known.at if known is not None and known.drained and drained else now
    tx.execute(delete(drained_clusters).where(drained_clusters.c.cluster == cluster))
    tx.execute(insert(drained_clusters).values(cluster=cluster, drained=drained, reason=reason, at=since))


def list_drained(tx: Connection) -> dict[str, DrainMark]:
    """Return the marks by cluster name."""
    return {
        cluster: DrainMark(drained=drained, reason=reason, at=at)
        for cluster, drained, reason, at in tx.execute(_DRAINED)
    }


def save_snapshots(tx: Connection, new_snapshots: Sequence[ClusterSnapshot]) -> None:
    """Replace the snapshots of these clusters; those of other clusters stay."""
    rows = [{"cluster": snapshot.name, "snapshot": snapshot} for snapshot in new_snapshots]
    if rows:
        tx.execute(delete(snapshots).where(snapshots.c.cluster.in_([row["cluster"] for row in rows])))
        _SAVE_SNAPSHOTS.run(tx, rows)


def load_snapshots(tx: Connection, names: Sequence[str] | None) -> dict[str, ClusterSnapshot]:
    """Return the last published snapshots by cluster name: of these clusters, or of all."""
    statement = select(snapshots.c.cluster, snapshots.c.snapshot)
    rows = tx.execute(statement if names is None else statement.where(snapshots.c.cluster.in_(names)))
    return {cluster: snapshot_from(data) for cluster, data in rows}


def save_waits(tx: Connection, new_waits: Sequence[Wait], *, epoch: int) -> None:
    """Replace what the leader says about waiting jobs."""
    tx.execute(delete(waits))
    tx.execute(insert(waits).values(id=1, epoch=epoch, waits=[asdict(wait) for wait in new_waits]))


def load_waits(tx: Connection, *, epoch: int) -> tuple[Wait, ...] | None:
    """Return what the leader of this epoch says about waiting jobs; None: nothing yet."""
    found = tx.execute(select(waits.c.waits).where(waits.c.epoch == epoch)).scalar_one_or_none()
    return None if found is None else tuple(Wait(**wait) for wait in found)
