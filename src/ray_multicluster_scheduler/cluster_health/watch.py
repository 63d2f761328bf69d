"""The cluster watch: probes every cluster at its own pace and keeps the last snapshot of each.

Each cluster has its own task and its own deadline, so a slow or hanging cluster never delays another one. An
expected error, such as a cluster that is down, becomes a snapshot. A bug in reading one cluster is logged and
makes only that cluster unhealthy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ray_multicluster_scheduler.asyncio_tools import both, together, within
from ray_multicluster_scheduler.config import Settings
from ray_multicluster_scheduler.core import circuit_breaker
from ray_multicluster_scheduler.core.live_jobs import OtherClaims
from ray_multicluster_scheduler.core.rules import FIRST_LOOK_S
from ray_multicluster_scheduler.errors import ClusterError, ClusterTimeout, StoreError
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, Health, Node, RemoteVersion, Usage
from ray_multicluster_scheduler.model.execution import AttemptStatus, Inventory, InventoryRow
from ray_multicluster_scheduler.model.resources import Resources, plus
from ray_multicluster_scheduler.ports import Clock, ClusterConnection, ClusterProbe, Connections

# One reliable probe of one cluster, within one deadline.
#
# `/api/version` still answers for a minute after the cluster's GCS died, so a probe succeeds only if the
# cluster also returns its nodes and answers a query for a job. The query is for a job that does not exist,
# because a list of all jobs takes longer the more jobs the cluster remembers. It is read now and then
# only, for
# the claims of other schedulers. Usage, the Python version and the
# list are optional: without them the cluster is healthy and the value is unknown.
#
# At most two requests are open at a time: a watch of 200 clusters stays far below the usual limit of 1024
# open files.

T = TypeVar("T")

#: The id of no job: Ray looks it up in the GCS and answers that it does not exist.
PROBE_JOB_ID = "raymc-probe"
#: A probe does not wait longer for others' claims: a sweep, which has more time, finds them a little later.
CLAIMS_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The answers of a cluster to one probe."""

    version: RemoteVersion
    nodes: tuple[Node, ...]
    #: The running jobs; None if they were not requested or not returned in time.
    inventory: Inventory | None
    #: What the jobs of other schedulers claim; None if it was not requested or not returned in time.
    claimed_by_others: Resources | None
    #: How long the list took.
    list_s: float
    #: None if it was not returned in time, which does not make the cluster unhealthy.
    usage: Usage | None
    python_version: str | None
    #: How long the mandatory answers took.
    latency_s: float

    @property
    def total(self) -> Resources:
        """Return the resources of the cluster: from its usage if known, else the sum over its live nodes."""
        if self.usage is not None and self.usage.total is not None:
            return self.usage.total
        total: Resources = {}
        for node in self.nodes:
            if node.alive:
                total = plus(total, node.resources)
        return total


async def read_cluster(
    name: str,
    cluster: ClusterConnection,
    *,
    clock: Clock,
    deadline_s: float,
    lists_jobs: bool = False,
    others: OtherClaims | None = None,
) -> Reading:
    """Probe a cluster; raise `ClusterError` if version, nodes or jobs fail or are late.

    `others`: add up the claims of other schedulers, if the list of all jobs can be read quickly.
    """
    started, ends_at = clock.monotonic(), asyncio.get_running_loop().time() + deadline_s
    try:
        (version, nodes), _ = await within(
            deadline_s, both(_version_and_nodes(cluster.probe), cluster.probe.driver(PROBE_JOB_ID))
        )
    except asyncio.TimeoutError:
        raise ClusterTimeout(name, f"no answer to nodes and jobs within {deadline_s:g} s") from None
    latency_s = clock.monotonic() - started
    left_s = ends_at - asyncio.get_running_loop().time()
    usage, python_version = await both(
        read_usage(cluster.probe, deadline_s=left_s), _answer_or_none(cluster.probe.python_version, left_s)
    )
    listed, list_began = None, clock.monotonic()
    if lists_jobs or others is not None:
        left_s = ends_at - asyncio.get_running_loop().time()
        listed = await _answer_or_none(
            lambda: cluster.probe.jobs(_seen_by(others, lists_jobs=lists_jobs)),
            left_s if lists_jobs else min(left_s, CLAIMS_WITHIN_S),
        )
    return Reading(
        version=version,
        nodes=nodes,
        inventory=listed if lists_jobs else None,
        claimed_by_others=None if others is None or listed is None else others.total,
        list_s=clock.monotonic() - list_began,
        usage=usage,
        python_version=python_version,
        latency_s=latency_s,
    )


async def read_usage(probe: ClusterProbe, *, deadline_s: float) -> Usage | None:
    """Return the usage of a cluster; None if it does not answer in time."""
    return await _answer_or_none(probe.usage, deadline_s)


def _seen_by(others: OtherClaims | None, *, lists_jobs: bool) -> Callable[[InventoryRow], bool]:
    """Return a filter that shows each row to `others`, and selects the running jobs if they are listed."""

    def keep(row: InventoryRow) -> bool:
        if others is not None:
            others.see(row)
        return lists_jobs and row.status is AttemptStatus.RUNNING

    return keep


async def _version_and_nodes(probe: ClusterProbe) -> tuple[RemoteVersion, tuple[Node, ...]]:
    return await probe.version(), await probe.nodes()


async def _answer_or_none(ask: Callable[[], Coroutine[Any, Any, T]], timeout_s: float) -> T | None:
    try:
        return await within(timeout_s, ask())
    except (ClusterError, asyncio.TimeoutError):
        return None


# Isolates the loops of one cluster: a bug that its answers trigger must not stop the engine.
#
# Expected errors are handled where they occur, so an exception that arrives here is a bug. It is logged
# with its traceback once per type and shown as the cluster's problem, and the step is retried after growing
# pauses. Errors of the store and the lease affect all clusters and are raised.


log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class Isolation:
    """Runs the steps of one loop of one cluster; `report` is called with its problem, or None if it works."""

    def __init__(self, cluster: str, what: str, report: Callable[[str | None], None]) -> None:
        self._cluster = cluster
        self._what = what
        self._report = report
        self._failures = 0
        self._logged: set[str] = set()

    async def run(self, step: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run one step; a bug in it is reported and not raised."""
        try:
            await step()
        except StoreError:
            raise
        except Exception as bug:  # noqa: BLE001 - the one supervisor of a cluster's loops
            self.failed(bug)
        else:
            self.worked()

    def failed(self, bug: Exception) -> None:
        """Report a bug, and count it for the next pause."""
        self._failures += 1
        self._report_bug(bug)

    def worked(self) -> None:
        """Note that a step succeeded."""
        if self._failures:
            self._failures = 0
            self._report(None)

    def pause_s(self, planned: float) -> float:
        """Return the pause before the next step, which grows with each failure in a row."""
        if not self._failures:
            return planned
        return max(planned, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 10)))

    def _report_bug(self, bug: Exception) -> None:
        kind = type(bug).__name__
        if kind not in self._logged:
            self._logged.add(kind)
            log.error(
                "a bug: %s failed; it is retried after a pause, and other clusters are not affected",
                self._what,
                extra={"cluster": self._cluster},
                exc_info=bug,
            )
        self._report(
            f"{self._what} fails with {kind}, a bug of this scheduler: please report it with the log"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The result of one probe, for listeners."""

    snapshot: ClusterSnapshot
    #: Health, session or totals differ from the previous probe, so a new plan is needed.
    changed: bool


#: The list of all jobs is read for others' claims once in so many probes. While there are such claims it is
#: read with each probe, because their end is waited for; and never for more than a twentieth of the time.
CLAIM_PROBES = 3
LIST_REST = 20
#: Where the list cannot be read in time, it is tried again after so many probes.
UNREAD_PROBES = 12
#: Claims that were not seen again for so many probes are forgotten.
CLAIMS_GOOD_FOR_PROBES = 60

Listener = Callable[[ProbeResult], None]


@dataclass(slots=True, kw_only=True)
class _WatchedCluster:
    """The state of one cluster between two probes."""

    connection: ClusterConnection
    snapshot: ClusterSnapshot
    track: circuit_breaker.Track = field(default_factory=circuit_breaker.Track)
    inventory: Inventory | None = None
    #: Bugs in our own work on this cluster, by the part of the engine that reported them.
    bugs: dict[str, str] = field(default_factory=dict)
    isolation: Isolation = field(init=False)
    #: Monotonic time of the next probe.
    due_at: float = float("-inf")
    probes: int = 0
    #: Monotonic time from which on others' claims are read again, and when they were last read.
    claims_due_at: float = float("-inf")
    claims_read_at: float = float("-inf")
    #: Number of probes and refreshes.
    looks: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ClusterWatch:
    """Keeps a recent `ClusterSnapshot` of every cluster; the caller opens and closes `connections`.

    `jitter` returns numbers from 0 to 1 (such as `clock.jitter`), so that not all clusters are probed at the
    same time. With `lists_jobs` each probe also lists the running jobs, if there is time. With `origin`, the
    id of our store, the claims of other schedulers are read now and then.
    """

    def __init__(
        self,
        connections: Connections,
        *,
        clock: Clock,
        settings: Settings,
        jitter: Callable[[], float],
        lists_jobs: bool = False,
        origin: str | None = None,
    ) -> None:
        self._origin = origin
        self._clock = clock
        self._settings = settings
        self._jitter = jitter
        self._lists_jobs = lists_jobs
        self._listeners: list[Listener] = []
        self._watched = {
            name: _WatchedCluster(connection=connection, snapshot=ClusterSnapshot(name=name))
            for name, connection in connections.items()
        }
        for name, watched in self._watched.items():
            watched.isolation = Isolation(name, "reading it", self.reporter(name, "watch"))

    def snapshots(self) -> Mapping[str, ClusterSnapshot]:
        """Return the last snapshot of every cluster. Those of failing clusters are old: see `observed_at`."""
        return {name: watched.snapshot for name, watched in self._watched.items()}

    def snapshot(self, name: str) -> ClusterSnapshot:
        """Return what was last seen of one cluster."""
        return self._watched[name].snapshot

    def inventory(self, name: str) -> Inventory | None:
        """Return the running jobs of the last successful probe; None if it did not list them."""
        return self._watched[name].inventory

    def note_others(self, name: str, claims: Resources) -> None:
        """Take note of what other schedulers claim on a cluster, read from the list of its jobs."""
        watched = self._watched[name]
        before = watched.snapshot
        watched.claims_read_at = self._clock.monotonic()
        if claims != before.claimed_by_others:
            watched.snapshot = replace(before, claimed_by_others=claims)
            self._notify(before, watched.snapshot)

    def reporter(self, name: str, part: str) -> Callable[[str | None], None]:
        """Return a callback for the bugs of one part of the engine: a cluster with a bug gets no work."""

        def report(problem: str | None) -> None:
            watched = self._watched[name]
            before = watched.snapshot
            if problem is None:
                watched.bugs.pop(part, None)
            else:
                watched.bugs[part] = problem
            watched.snapshot = self._with_health(watched, before)
            self._notify(before, watched.snapshot)

        return report

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after every probe; it must not block. Returns a function that unsubscribes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def probe(self, name: str) -> ClusterSnapshot:
        """Probe one cluster now, or wait for the probe that is under way."""
        watched = self._watched[name]
        probes_before = watched.probes
        async with watched.lock:
            if watched.probes == probes_before:
                await watched.isolation.run(lambda: self._probe(watched))
                watched.due_at = self._clock.monotonic() + watched.isolation.pause_s(
                    self._pause_s(watched.track)
                )
        return watched.snapshot

    async def refresh(self, name: str) -> None:
        """Read the usage of a cluster again, or wait for the read that is under way.

        It costs much less than a probe, because it happens after the end of each job.
        """
        watched = self._watched[name]
        looks_before = watched.looks
        async with watched.lock:
            if watched.looks == looks_before:
                await watched.isolation.run(lambda: self._refresh(watched))

    async def step(self) -> None:
        """Probe all clusters that are due, concurrently, except those that are being probed already."""
        now = self._clock.monotonic()
        due = [n for n, w in self._watched.items() if w.due_at <= now and not w.lock.locked()]
        await together(self.probe(name) for name in due)

    def expect_first_look(self) -> None:
        """Mark the clusters that are due as awaited: their snapshots are old, so decisions must wait."""
        now = self._clock.monotonic()
        for watched in self._watched.values():
            if watched.due_at <= now:
                watched.snapshot = replace(watched.snapshot, health=Health.UNKNOWN, awaited=True)

    async def first_look(self) -> None:
        """Probe all clusters that are due, so that decisions have a snapshot of each.

        It takes as long as the slowest cluster, but at most `FIRST_LOOK_S`.
        """
        self.expect_first_look()
        try:
            with suppress(asyncio.TimeoutError):
                await within(FIRST_LOOK_S, self.step())
        finally:
            for watched in self._watched.values():
                watched.snapshot = replace(watched.snapshot, awaited=False)

    async def run(self) -> None:
        """Probe every cluster at its own pace until cancelled."""
        await together(self._follow(name) for name in self._watched)

    async def _follow(self, name: str) -> None:
        watched = self._watched[name]
        while True:
            await asyncio.sleep(max(0.0, watched.due_at - self._clock.monotonic()))
            await self.probe(name)

    async def _probe(self, watched: _WatchedCluster) -> None:
        """Read a cluster, update its snapshot, and notify the listeners."""
        before, asked_at = watched.snapshot, self._clock.now()
        deadline_s = self._settings.probe_timeout_s
        is_due = self._clock.monotonic() >= watched.claims_due_at
        is_listed = is_due or self._lists_jobs
        others = OtherClaims(self._origin) if self._origin is not None and is_listed else None
        reading: Reading | None = None
        try:
            reading = await read_cluster(
                before.name,
                watched.connection,
                clock=self._clock,
                deadline_s=deadline_s,
                lists_jobs=self._lists_jobs,
                others=others,
            )
            finding = circuit_breaker.finding_of_nodes(reading.nodes, latency_s=reading.latency_s)
        except ClusterError as error:
            finding = circuit_breaker.finding_of_error(error)
        watched.track = circuit_breaker.judge(watched.track, finding, limit=self._settings.breaker_failures)
        after = before if reading is None else _with_reading(before, reading, asked_at=asked_at)
        if reading is not None:
            after = replace(after, claimed_by_others=self._others(watched, reading, is_due=is_due))
        watched.snapshot = self._with_health(watched, after)
        watched.inventory = watched.inventory if reading is None else reading.inventory
        watched.probes += 1
        watched.looks += 1
        self._notify(before, watched.snapshot)

    def _others(self, watched: _WatchedCluster, reading: Reading, *, is_due: bool) -> Resources:
        """Return others' claims after a probe, and set when they are read again."""
        now, interval_s = self._clock.monotonic(), self._settings.probe_interval_s
        known, read = watched.snapshot.claimed_by_others, reading.claimed_by_others
        if read is not None:
            probes = 1 if read else CLAIM_PROBES
            # A little less: probes do not come exactly at their pace.
            pause_s = max((probes - 0.5) * interval_s, LIST_REST * reading.list_s)
            watched.claims_read_at, watched.claims_due_at = now, now + pause_s
            return read
        if is_due:
            watched.claims_due_at = now + UNREAD_PROBES * interval_s
        if reading.version.session_name != watched.snapshot.session_name:
            watched.claims_due_at = now  # the jobs of the former head are gone
            return {}
        return known if now - watched.claims_read_at <= CLAIMS_GOOD_FOR_PROBES * interval_s else {}

    async def _refresh(self, watched: _WatchedCluster) -> None:
        asked_at = self._clock.now()
        usage = await read_usage(watched.connection.probe, deadline_s=self._settings.probe_timeout_s)
        watched.looks += 1
        before = watched.snapshot  # a bug may have been reported meanwhile
        if usage is None or before.observed_at is None:
            return  # the next probe will report the problem
        watched.snapshot = replace(before, used=usage.used, pending=usage.pending, observed_at=asked_at)
        self._notify(before, watched.snapshot)

    def _with_health(self, watched: _WatchedCluster, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        track, bug = watched.track, next(iter(watched.bugs.values()), None)
        return replace(
            snapshot,
            health=track.health if bug is None else Health.UNHEALTHY,
            score=circuit_breaker.score(track, deadline_s=self._settings.probe_timeout_s),
            problem=track.problem if bug is None else bug,
            awaited=False,
        )

    def _pause_s(self, track: circuit_breaker.Track) -> float:
        return circuit_breaker.pause_s(
            track.breaker,
            limit=self._settings.breaker_failures,
            interval_s=self._settings.probe_interval_s,
            max_delay_s=self._settings.breaker_max_delay_s,
            jitter=self._jitter(),
        )

    def _notify(self, before: ClusterSnapshot, after: ClusterSnapshot) -> None:
        changed = _planning_inputs(before) != _planning_inputs(after)
        result = ProbeResult(snapshot=after, changed=changed)
        for listener in tuple(self._listeners):
            listener(result)


def _with_reading(before: ClusterSnapshot, reading: Reading, *, asked_at: float) -> ClusterSnapshot:
    """Return a snapshot with the values that were just read.

    Its time is that of the request: the answer includes everything that happened before. If no node is alive,
    the former total is kept: the cluster will have it again once its nodes are back.
    """
    usage = reading.usage
    return replace(
        before,
        total=reading.total if any(node.alive for node in reading.nodes) else before.total,
        used=None if usage is None else usage.used,
        pending=None if usage is None else usage.pending,
        nodes=reading.nodes,
        ray_version=reading.version.ray_version,
        python_version=reading.python_version,
        session_name=reading.version.session_name,
        latency_s=reading.latency_s,
        observed_at=asked_at,
    )


def _planning_inputs(snapshot: ClusterSnapshot) -> tuple[object, ...]:
    return snapshot.health, snapshot.session_name, snapshot.total
