"""A store with something in every table, and whether two stores hold the same."""

from typing import Any

from sqlalchemy import select
from tests.support.builders import NOW, a_snapshot
from tests.support.leader import Leader

from ray_multicluster_scheduler.model.access import AuditEntry, Token
from ray_multicluster_scheduler.model.result import LeftResult
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.model.storage import Upload
from ray_multicluster_scheduler.store import Store
from ray_multicluster_scheduler.store.schema.tables import metadata

#: More than one batch of a copy.
CHUNKS = 6


def fill(store: Store) -> Leader:
    """Write something into every table; the returned leader holds the lease."""
    leader = Leader(store)
    for state in JobState:
        leader.add(f"is-{state.value}", state, tags=("ü", "b"), runtime_env={"env_vars": {"A": "é\u0000"}})
    leader.add("waits", depends_on=("is-RUNNING",), idempotency_key="once", name="nightly", group="g")
    leader.add("waits-too", group="g")
    leader.add("session", executor="ray-client", client_address="10.0.0.5")
    ended = store.jobs.get("is-SUBMITTED")
    leader.store.jobs.apply(
        [leader.wanted(ended, JobState.SUCCEEDED)],
        epoch=leader.lease.epoch,
        now=NOW,
        logs=[("is-SUBMITTED", 1, "line\n" * 10)],
        results=[("is-SUBMITTED", 1, LeftResult(content=b"\x00\xff", problem="half of it"))],
    )
    leader.add("newest", JobState.FAILED)
    store.retention.delete(["newest"])  # its number must not be given again
    store.clusters.set_drained("a", drained=True, reason="disks", now=NOW)
    store.clusters.save_snapshots([a_snapshot("a")], epoch=leader.lease.epoch)
    entry = AuditEntry(at=NOW, user="ann", action="token create", target="t1", outcome="ok")
    token = Token(id="t1", user="ann", role="admin", created_at=NOW, expires_at=None)
    store.access.add_token(token, "d", audit=entry)
    package = store.packages.begin(now=NOW)
    for number in range(CHUNKS):
        store.packages.append(package, bytes([number, 0, 255]) * 100, now=NOW)
    store.packages.finish(package, "_ray_pkg_1.zip", now=NOW)
    store.uploads.save([Upload(user="ann", name="n", content="_ray_pkg_1.zip", size=3, used_at=NOW)])
    return leader


def content(store: Store, *, without: frozenset[str] = frozenset()) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables, by table."""
    with store._database.read() as tx:
        return {
            table.name: [tuple(row) for row in tx.execute(select(table).order_by(*table.primary_key))]
            for table in metadata.sorted_tables
            if table.name not in without
        }
