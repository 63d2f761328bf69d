"""All clusters as they are at this moment, with what our own store says of them and what runs inside."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.clock import CachedFor, jitter
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.config.store_place import StorePlace
from ray_multicluster_scheduler.core.lifecycle.attempt_request import JOB, USER
from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.core.pacing import first_limit
from ray_multicluster_scheduler.core.placement.inputs import World, cluster_views
from ray_multicluster_scheduler.environment.redact import redact_text
from ray_multicluster_scheduler.errors import ClusterError, StoreError
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, DrainMark
from ray_multicluster_scheduler.model.execution import AttemptStatus
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.ports import Clock, Connections
from ray_multicluster_scheduler.service.logs import Reach
from ray_multicluster_scheduler.service.make_views import Secrets, show_cluster
from ray_multicluster_scheduler.service.views import ClusterView, ProcessList, ProcessView
from ray_multicluster_scheduler.store import Store, open_at

if TYPE_CHECKING:
    from ray_multicluster_scheduler.ray_api.http_connection import Driver, RemoteActor, RemoteTask


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecords:
    """What our own store has recorded about the clusters."""

    #: Jobs that hold an attempt on a cluster.
    live: Sequence[Job] = ()
    #: Marks made by `raymc drain` and `undrain`.
    drains: Mapping[str, DrainMark] = field(default_factory=dict)
    #: The id of the store, by which our jobs on a cluster are known. Without a store none is ours.
    origin: str = ""

    @classmethod
    def of(cls, store: Store) -> ClusterRecords:
        """Read an open store."""
        return cls(live=store.queue.live(), drains=store.clusters.drained(), origin=store.store_id)

    @classmethod
    def read(cls, place: StorePlace) -> ClusterRecords:
        """Read a store that is not open; without a readable store nothing is drained or claimed."""
        try:
            with closing(open_at(place, create=False)) as store:
                return cls.of(store)
        except StoreError:
            return cls()


class ClusterLook:
    """Looks at all clusters: once with `step`, or again and again with `run`."""

    def __init__(
        self, config: Config, watch: ClusterWatch, clock: Clock, read_records: Callable[[], ClusterRecords]
    ) -> None:
        self._config = config
        self._watch = watch
        self._clock = clock
        self._read_records = read_records

    @property
    def interval_s(self) -> float:
        """How often there is something new to see."""
        return self._config.settings.probe_interval_s

    async def step(self) -> None:
        """Look at every cluster once."""
        await self._watch.step()

    async def run(self) -> None:
        """Look at each cluster at its own pace, until cancelled."""
        await self._watch.run()

    def views(self) -> tuple[ClusterView, ...]:
        """Return what was last seen of every cluster."""
        records = self._read_records()
        world = World(
            specs=self._config.clusters,
            snapshots=self._watch.snapshots(),
            live=LiveJobs(records.live),
            drains=records.drains,
            now=self._clock.now(),
        )
        return tuple(
            show_cluster(planned, now=world.now, running_jobs=self._running(planned.spec.name))
            for planned in cluster_views(world)
        )

    def _running(self, name: str) -> int | None:
        inventory = self._watch.inventory(name)
        if inventory is None:
            return None
        return sum(each.status is AttemptStatus.RUNNING for each in inventory.sightings)


@asynccontextmanager
async def open_cluster_look(
    config: Config,
    connect: Callable[[], Connections],
    clock: Clock,
    read_records: Callable[[], ClusterRecords],
) -> AsyncIterator[ClusterLook]:
    """Open all clusters of a configuration, and close them again."""
    connections = connect()
    try:
        origin = (await asyncio.to_thread(read_records)).origin
        watch = ClusterWatch(
            connections,
            clock=clock,
            settings=config.settings,
            jitter=jitter,
            lists_jobs=True,
            origin=origin,
        )
        yield ClusterLook(config, watch, clock, read_records)
    finally:
        await asyncio.gather(*(each.close() for each in connections.values()))


# Fresh snapshots of the clusters, for `explain` and the dry run when there is no leader.


#: How long snapshots are reused, so that explaining many jobs in a row probes only once.
SNAPSHOTS_FOR_S = 2.0

Snapshots = Mapping[str, ClusterSnapshot]


class FreshLook:
    """Probes all clusters on demand, unless it has just done so."""

    def __init__(self, config: Config, reach: Reach, clock: Clock, *, origin: str) -> None:
        self._origin = origin
        self._config = config
        self._reach = reach
        self._clock = clock
        self._kept = CachedFor(self._look, clock, good_for_s=SNAPSHOTS_FOR_S)

    def __call__(self) -> Snapshots:
        """Return current snapshots."""
        return self._kept()

    def _look(self) -> Snapshots:
        snapshots: Snapshots = self._reach(self._probe).result()
        return snapshots

    async def _probe(self, connections: Connections) -> Snapshots:
        settings = self._config.settings
        watch = ClusterWatch(
            connections, clock=self._clock, settings=settings, jitter=jitter, origin=self._origin
        )
        await watch.first_look()
        start_limit = first_limit(settings.max_starts_in_flight).starts
        return {name: replace(seen, start_limit=start_limit) for name, seen in watch.snapshots().items()}


#: How the bridge names its two ends (tasks/bridges.py and tasks/wire/connection.py).
HUB, BRIDGE = "raymc hub ", "raymc bridge to "
#: Ray runs a job inside such an actor.
_SUPERVISOR = "JobSupervisor"


def items_of(
    cluster: str, drivers: Sequence[Driver], actors: Sequence[RemoteActor], tasks: Sequence[RemoteTask]
) -> list[ProcessView]:
    """Return the lines of one cluster."""
    hubs = {actor.job_id: _user(actor) for actor in actors if actor.name.startswith(HUB)}
    shown = [actor for actor in actors if actor.class_name != _SUPERVISOR]
    return [
        *(_driver(cluster, driver, hubs) for driver in drivers),
        *(_actor(cluster, actor) for actor in shown),
        *_tasks(cluster, tasks),
    ]


def _driver(cluster: str, driver: Driver, hubs: dict[str, str]) -> ProcessView:
    if driver.is_client_session:
        user = hubs.get(driver.job_id)
        why = f"the bridge of {user}" if user else _of_session(driver)
        kind, what = "session", "Ray Client helper process (specific-server)"
    elif driver.submission_id:
        kind, what, why = "job", driver.command, f"submitted as {driver.submission_id}"
    else:
        kind, what, why = "driver", driver.command, "a program connected with ray.init()"
    return ProcessView(
        cluster=cluster,
        kind=kind,
        state=driver.state,
        what=what,
        why=why,
        pid=driver.pid,
        started_at=driver.started_at,
    )


def _of_session(driver: Driver) -> str:
    """Say whose session it is, if it came through a server of ours."""
    if not (name := driver.metadata.get(JOB)):
        return "a program connected with ray.init('ray://...')"
    return f"{name} of {driver.metadata.get(USER, 'somebody')}"


def _actor(cluster: str, actor: RemoteActor) -> ProcessView:
    kind, what, why = "actor", actor.class_name, f"named {actor.name!r}" if actor.name else ""
    if actor.name.startswith(HUB):
        kind, what, why = "hub", "starts work here", f"for {_user(actor)}"
    elif actor.name.startswith(BRIDGE):
        kind, what = "bridge", f"to cluster {actor.name.removeprefix(BRIDGE).split()[0]}"
        why = f"a driver here (Ray job {actor.job_id}) uses that cluster"
    return ProcessView(cluster=cluster, kind=kind, state=actor.state, what=what, why=why, pid=actor.pid)


def _user(hub: RemoteActor) -> str:
    """Return for whom a hub is there."""
    return hub.name.partition(" for ")[2]


def _tasks(cluster: str, tasks: Iterable[RemoteTask]) -> list[ProcessView]:
    """Return one line per name and state: there may be thousands."""
    counted = Counter((task.name, task.state) for task in tasks if not task.is_actor_call)
    return [
        ProcessView(cluster=cluster, kind="task", state=state, what=f"{count} × {name}", why="")
        for (name, state), count in sorted(counted.items())
    ]


async def processes(config: Config, environ: Mapping[str, str]) -> tuple[list[ProcessView], dict[str, str]]:
    """Return what runs on the clusters, and for each that cannot be looked at, why."""
    found = await asyncio.gather(*(_look_at(spec, environ) for spec in config.clusters))
    items = [item for result in found if isinstance(result, list) for item in result]
    problems = {
        spec.name: result.detail
        for spec, result in zip(config.clusters, found, strict=True)
        if isinstance(result, ClusterError)
    }
    return items, problems


async def _look_at(spec: ClusterSpec, environ: Mapping[str, str]) -> list[ProcessView] | ClusterError:
    from ray_multicluster_scheduler.ray_api.http_connection import open_connection  # noqa: PLC0415 - slow

    async with open_connection(spec, environ) as connection:
        state = connection.state
        try:
            drivers, actors, tasks = await asyncio.gather(state.drivers(), state.actors(), state.tasks())
        except ClusterError as problem:
            return problem
    return items_of(spec.name, drivers, actors, tasks)


# What runs inside the clusters, for many who ask: looked at every few seconds at most, without secrets.


#: How long an answer is reused: each look asks every cluster for its drivers, actors and tasks.
PROCESSES_FOR_S = 3.0


class ProcessLook:
    """Asks all clusters what runs there, unless it has just done so."""

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        clock: Clock,
        read_records: Callable[[], ClusterRecords],
    ) -> None:
        self._config = config
        self._environ = environ
        self._read_records = read_records
        self._kept = CachedFor(self._look, clock, good_for_s=PROCESSES_FOR_S)

    def __call__(self) -> ProcessList:
        """Return what runs on the clusters; not on a thread that runs an event loop."""
        return self._kept()

    def _look(self) -> ProcessList:
        items, problems = asyncio.run(processes(self._config, self._environ))
        secrets = self._secrets()
        return ProcessList(
            items=tuple(_shown(item, secrets) for item in items),
            problems={name: redact_text(problem, secrets) for name, problem in problems.items()},
        )

    def _secrets(self) -> frozenset[str]:
        """Return what our jobs were sent with: a command line may show it."""
        known = Secrets(self._config.clusters)
        return frozenset[str]().union(*(known.of(job) for job in self._read_records().live))


def _shown(item: ProcessView, secrets: Collection[str]) -> ProcessView:
    texts = {"what": redact_text(item.what, secrets), "why": redact_text(item.why, secrets)}
    return item.model_copy(update=texts)
