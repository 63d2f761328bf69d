"""The cluster watch: probes every cluster at its own pace and keeps what was last seen of each.

Each cluster is followed by a task of its own with a deadline of its own, so a slow or hanging cluster delays
nobody else, not in this round and not in the next. Expected trouble (a cluster is down) becomes a snapshot; a
bug in reading one cluster makes that one unhealthy, loudly, and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ray_multicluster_scheduler.asyncio_tools import together, within
from ray_multicluster_scheduler.cluster_health.isolation import Isolation
from ray_multicluster_scheduler.cluster_health.probe import Reading, read_cluster, read_usage
from ray_multicluster_scheduler.config import Settings
from ray_multicluster_scheduler.core.flow import circuit_breaker
from ray_multicluster_scheduler.core.placement.rules import FIRST_LOOK_S
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, Health
from ray_multicluster_scheduler.model.execution import Inventory
from ray_multicluster_scheduler.ports import Clock, ClusterConnection, Connections


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What one finished look tells those who listen."""

    snapshot: ClusterSnapshot
    #: Health, session or totals differ from the probe before: worth planning anew.
    changed: bool


Listener = Callable[[Probed], None]


@dataclass(slots=True, kw_only=True)
class _Watched:
    """All that is kept of one cluster between two probes."""

    connection: ClusterConnection
    snapshot: ClusterSnapshot
    track: circuit_breaker.Track = field(default_factory=circuit_breaker.Track)
    inventory: Inventory | None = None
    #: What is wrong with our own work on this cluster, by the part that says so.
    bugs: dict[str, str] = field(default_factory=dict)
    isolation: Isolation = field(init=False)
    #: Monotonic time of the next probe.
    due_at: float = float("-inf")
    probes: int = 0
    #: Probes, and what was read in between.
    looks: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ClusterWatch:
    """Keeps a fresh `ClusterSnapshot` of every cluster in `connections`; the caller opens and closes them.

    `jitter` returns numbers from 0 to 1 (such as `clock.jitter`): it keeps many clusters from being
    probed in the same instant. With `lists_jobs` each probe also lists the jobs that run, if there is time.
    """

    def __init__(
        self,
        connections: Connections,
        *,
        clock: Clock,
        settings: Settings,
        jitter: Callable[[], float],
        lists_jobs: bool = False,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._jitter = jitter
        self._lists_jobs = lists_jobs
        self._listeners: list[Listener] = []
        self._watched = {
            name: _Watched(connection=connection, snapshot=ClusterSnapshot(name=name))
            for name, connection in connections.items()
        }
        for name, watched in self._watched.items():
            watched.isolation = Isolation(name, "reading it", self.reporter(name, "watch"))

    def snapshots(self) -> Mapping[str, ClusterSnapshot]:
        """Return what was last seen of every cluster. Values of a failing one are old: see `observed_at`."""
        return {name: watched.snapshot for name, watched in self._watched.items()}

    def inventory(self, name: str) -> Inventory | None:
        """Return the running jobs that the last good probe found; None when they were not told."""
        return self._watched[name].inventory

    def reporter(self, name: str, part: str) -> Callable[[str | None], None]:
        """Return what a part of the engine tells its bugs to: a cluster that we fail with gets no work."""

        def report(problem: str | None) -> None:
            watched = self._watched[name]
            before = watched.snapshot
            if problem is None:
                watched.bugs.pop(part, None)
            else:
                watched.bugs[part] = problem
            watched.snapshot = self._judged(watched, before)
            self._tell(before, watched.snapshot)

        return report

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have `listener` called after every probe; returns what ends that. It must not block."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def probe(self, name: str) -> ClusterSnapshot:
        """Look at one cluster now, or join the look that is under way."""
        watched = self._watched[name]
        seen = watched.probes
        async with watched.lock:
            if watched.probes == seen:
                await watched.isolation.run(lambda: self._probe(watched))
                watched.due_at = self._clock.monotonic() + watched.isolation.pause_s(
                    self._pause_s(watched.track)
                )
        return watched.snapshot

    async def refresh(self, name: str) -> None:
        """Read again what a cluster uses, or join the look that is under way.

        Much less than a probe, because it is done after the end of each job.
        """
        watched = self._watched[name]
        seen = watched.looks
        async with watched.lock:
            if watched.looks == seen:
                await watched.isolation.run(lambda: self._refresh(watched))

    async def step(self) -> None:
        """Probe all clusters that are due, concurrently; one that is being probed is not waited for."""
        now = self._clock.monotonic()
        due = [n for n, w in self._watched.items() if w.due_at <= now and not w.lock.locked()]
        await together(self.probe(name) for name in due)

    def expect_first_look(self) -> None:
        """Wait with decisions until those that are due were looked at: what is known of them is old."""
        now = self._clock.monotonic()
        for watched in self._watched.values():
            if watched.due_at <= now:
                watched.snapshot = replace(watched.snapshot, health=Health.UNKNOWN, awaited=True)

    async def first_look(self) -> None:
        """Look at all clusters that are due, so that a decision knows all of them.

        It takes as long as the slowest one, but no longer than `FIRST_LOOK_S`.
        """
        self.expect_first_look()
        try:
            with suppress(asyncio.TimeoutError):
                await within(FIRST_LOOK_S, self.step())
        finally:
            for watched in self._watched.values():
                watched.snapshot = replace(watched.snapshot, awaited=False)

    async def run(self) -> None:
        """Follow every cluster until cancelled."""
        await together(self._follow(name) for name in self._watched)

    async def _follow(self, name: str) -> None:
        watched = self._watched[name]
        while True:
            await asyncio.sleep(max(0.0, watched.due_at - self._clock.monotonic()))
            await self.probe(name)

    async def _probe(self, watched: _Watched) -> None:
        """Read, judge, keep, tell."""
        before, asked_at = watched.snapshot, self._clock.now()
        deadline_s = self._settings.probe_timeout_s
        reading: Reading | None = None
        try:
            reading = await read_cluster(
                before.name,
                watched.connection,
                clock=self._clock,
                deadline_s=deadline_s,
                lists_jobs=self._lists_jobs,
            )
            finding = circuit_breaker.finding_of_nodes(reading.nodes, latency_s=reading.latency_s)
        except ClusterError as error:
            finding = circuit_breaker.finding_of_error(error)
        watched.track = circuit_breaker.judge(watched.track, finding, limit=self._settings.breaker_failures)
        after = before if reading is None else _seen(before, reading, asked_at=asked_at)
        watched.snapshot = self._judged(watched, after)
        watched.inventory = watched.inventory if reading is None else reading.inventory
        watched.probes += 1
        watched.looks += 1
        self._tell(before, watched.snapshot)

    async def _refresh(self, watched: _Watched) -> None:
        before, asked_at = watched.snapshot, self._clock.now()
        usage = await read_usage(watched.connection.probe, deadline_s=self._settings.probe_timeout_s)
        watched.looks += 1
        if usage is None or before.observed_at is None:
            return  # what is wrong with it is for the next probe to tell
        watched.snapshot = replace(before, used=usage.used, pending=usage.pending, observed_at=asked_at)
        self._tell(before, watched.snapshot)

    def _judged(self, watched: _Watched, seen: ClusterSnapshot) -> ClusterSnapshot:
        track, bug = watched.track, next(iter(watched.bugs.values()), None)
        return replace(
            seen,
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

    def _tell(self, before: ClusterSnapshot, after: ClusterSnapshot) -> None:
        changed = _worth_planning(before) != _worth_planning(after)
        probed = Probed(snapshot=after, changed=changed)
        for listener in tuple(self._listeners):
            listener(probed)


def _seen(before: ClusterSnapshot, reading: Reading, *, asked_at: float) -> ClusterSnapshot:
    """Replace the values of a snapshot by those just read.

    The time is that of the question: whatever happened before it is in the answer. A cluster without a living
    node has nothing now, but its size is what it was: it can hold as much again once it is back.
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


def _worth_planning(snapshot: ClusterSnapshot) -> tuple[object, ...]:
    return snapshot.health, snapshot.session_name, snapshot.total
