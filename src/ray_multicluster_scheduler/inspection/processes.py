"""What runs inside each cluster, and why: jobs, actors, tasks, bridges, Ray Client sessions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ray_multicluster_scheduler.clock import CachedFor
from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.core.lifecycle.attempt_request import JOB, USER
from ray_multicluster_scheduler.environment.redact import redact_text
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.inspection.clusters import ClusterRecords
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.ray_api.http_connection import open_connection
from ray_multicluster_scheduler.ray_api.state_api import Driver, RemoteActor, RemoteTask
from ray_multicluster_scheduler.service.make_views import Secrets
from ray_multicluster_scheduler.service.views import ProcessList, ProcessView

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
    async with open_connection(spec, environ) as connection:
        state = connection.state
        try:
            drivers, actors, tasks = await asyncio.gather(state.drivers(), state.actors(), state.tasks())
        except ClusterError as problem:
            return problem
    return items_of(spec.name, drivers, actors, tasks)


# What runs inside the clusters, for many who ask: looked at every few seconds at most, without secrets.


#: How long an answer is reused: each look asks every cluster for its drivers, actors and tasks.
GOOD_FOR_S = 3.0


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
        self._kept = CachedFor(self._look, clock, good_for_s=GOOD_FOR_S)

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
