"""`raymc db check`: what is in a store, and whether all of it fits together. Nothing is written."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from ray_multicluster_scheduler.cluster_health.diagnosis import Check, Verdict
from ray_multicluster_scheduler.config.store_place import StorePlace
from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.job import Lease
from ray_multicluster_scheduler.store.backend import Database
from ray_multicluster_scheduler.store.open_place import existing_database, shown
from ray_multicluster_scheduler.store.operations import invariants, leases, store_identity
from ray_multicluster_scheduler.store.schema.revision import moved_to, read_revision
from ray_multicluster_scheduler.store.schema.tables import REVISION

_DAMAGED = "stop all programs that use it, move its files away, and restore the last backup"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """What was found."""

    place: str
    checks: tuple[Check, ...]
    store_id: str | None = None
    revision: str | None = None
    #: The process that schedules now.
    leader: str | None = None
    #: Jobs in each state.
    jobs: Mapping[str, int] = field(default_factory=dict)
    bytes: int | None = None

    @property
    def problems(self) -> int:
        """The number of checks that found a problem."""
        return sum(check.verdict is Verdict.PROBLEM for check in self.checks)


def examine(place: StorePlace) -> StoreReport:
    """Look at the store of a configuration. `StoreError` if there is none, or it cannot be opened."""
    where = shown(place)
    with existing_database(place) as database:
        try:
            with database.read() as tx:
                return _report(where, database, tx)
        except StoreError as problem:  # it could be opened, and some of it cannot be read
            unreadable = Check(name="files", verdict=Verdict.PROBLEM, says=str(problem), advice=_DAMAGED)
            return StoreReport(place=where, checks=(unreadable,))


def _report(where: str, database: Database, tx: Connection) -> StoreReport:
    revision = read_revision(tx)
    checks = [_schema_check(tx, revision), _whole(database, tx)]
    if revision == REVISION:
        checks.extend(_rules(tx))
    return StoreReport(
        place=where,
        checks=tuple(checks),
        store_id=store_identity.read_store_id(tx),
        revision=revision,
        leader=_leader(database, tx),
        jobs=invariants.counts_by_state(tx),
        bytes=database.space(tx).file_bytes,
    )


def _leader(database: Database, tx: Connection) -> str | None:
    """Return the holder of a lease that has not expired."""
    now = database.time(tx, time.time())
    lease: Lease | None = leases.leader(tx, now=now, is_dead=lambda _: False)
    return None if lease is None else lease.holder


def _schema_check(tx: Connection, revision: str | None) -> Check:
    if revision == REVISION:
        return Check(name="schema", verdict=Verdict.OK, says=f"{revision}, that of this version")
    place = moved_to(tx)
    if place is not None:
        return Check(
            name="schema",
            verdict=Verdict.PROBLEM,
            says=f"this store was moved to {place}, and is written no more",
            advice="name that place as `store` under `scheduler:` in clusters.yaml",
        )
    return Check(
        name="schema",
        verdict=Verdict.NOTE,
        says=f"{revision}; this version has {REVISION}, so the rows were not checked",
        advice="a scheduler of this version brings an older store up to date when it starts; for a newer one "
        "install the newer version",
    )


def _whole(database: Database, tx: Connection) -> Check:
    damage = database.damage(tx)
    if damage:
        return Check(name="files", verdict=Verdict.PROBLEM, says="; ".join(damage), advice=_DAMAGED)
    return Check(name="files", verdict=Verdict.OK, says="nothing is damaged, as far as the database can tell")


def _rules(tx: Connection) -> Iterator[Check]:
    broken = invariants.broken_rules(tx)
    for each in broken:
        named = f" ({', '.join(each.ids)}{', …' if each.count > len(each.ids) else ''})" if each.ids else ""
        says = f"{each.rule}: not so for {each.count}{named}"
        yield Check(name="rows", verdict=Verdict.PROBLEM, says=says, advice=each.advice)
    if not broken:
        yield Check(name="rows", verdict=Verdict.OK, says="jobs, attempts, events and packages fit together")
