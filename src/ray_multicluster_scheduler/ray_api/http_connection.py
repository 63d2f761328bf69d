"""`ports.ClusterConnection` to a Ray cluster over HTTP, opened from its entry in clusters.yaml.

It tells how the cluster is, keeps packages there, and lists what runs inside: actors, tasks, and drivers
(jobs, Ray Client sessions).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ray_multicluster_scheduler.errors import ClusterRefused
from ray_multicluster_scheduler.model.cluster import ClusterSpec, Node, RemoteVersion, Usage
from ray_multicluster_scheduler.model.execution import Inventory, InventoryRow, SessionDriver, Sighting
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.ray_api import parse
from ray_multicluster_scheduler.ray_api.http_client import JOBS_PATH, REQUEST_TIMEOUT_S, HttpClient
from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer, translated
from ray_multicluster_scheduler.ray_api.parse import parse_usage_text

#: The limit of Ray's state API.
MAX_ROWS = 10_000
#: Size of that many rows. Not for the engine: parsing them would block it for too long.
MAX_STATE_BYTES = 32 * 2**20
#: More digits than any process id has.
_DIGITS = 19
#: Ray Client starts such a process on the cluster for each connection.
SESSION_MARK = "--mode=specific-server"
_LIVE = frozenset({"PENDING", "RUNNING"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteActor:
    """One actor of a cluster."""

    actor_id: str
    class_name: str
    name: str
    state: str
    pid: int | None
    #: The driver that it belongs to.
    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTask:
    """One task of a cluster, or one call of an actor."""

    task_id: str
    name: str
    state: str
    is_actor_call: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """An actor or a running task, and the resources that it holds."""

    name: str
    resources: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A program that a cluster runs or is about to run: a job, or a process that called `ray.init`."""

    #: Ray's own number; empty for a job that has not called `ray.init`.
    job_id: str
    #: Unknown for a job that has not called `ray.init`.
    pid: int | None
    command: str
    submission_id: str | None
    #: Ray's state: PENDING or RUNNING.
    state: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    started_at: float | None = None

    @property
    def is_client_session(self) -> bool:
        """Tell whether this is a helper process of Ray Client."""
        return SESSION_MARK in self.command


class ClusterState:
    """Reads the actors, tasks and drivers of one cluster over HTTP."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def actors(self) -> tuple[RemoteActor, ...]:
        """Return the actors that have not ended."""
        path = (
            f"/api/v0/actors?limit={MAX_ROWS}&filter_keys=state&filter_predicates=%21%3D&filter_values=DEAD"
        )
        return tuple(
            RemoteActor(
                actor_id=_text(row, "actor_id"),
                class_name=_text(row, "class_name"),
                name=_text(row, "name"),
                state=_text(row, "state"),
                pid=_number(row.get("pid")),
                job_id=_text(row, "job_id"),
            )
            for row in await self._rows(path)
        )

    async def tasks(self) -> tuple[RemoteTask, ...]:
        """Return the tasks and calls that have not ended."""
        ended = "".join(
            f"&filter_keys=state&filter_predicates=%21%3D&filter_values={state}"
            for state in ("FINISHED", "FAILED")
        )
        return tuple(_task(row) for row in await self._rows(f"/api/v0/tasks?limit={MAX_ROWS}{ended}"))

    async def task(self, task_id: str) -> RemoteTask | None:
        """Return one task, ended or not; None if the cluster does not know it yet or has forgotten it."""
        path = f"/api/v0/tasks?limit=10&filter_keys=task_id&filter_predicates=%3D&filter_values={task_id}"
        rows = await self._rows(path)
        return _task(rows[-1]) if rows else None

    async def holders(self) -> tuple[Holder, ...]:
        """Return the live actors and the running tasks, with the resources that they hold."""
        actors = await self._rows(f"/api/v0/actors?limit={MAX_ROWS}&detail=1{_where('state', 'ALIVE')}")
        tasks = await self._rows(f"/api/v0/tasks?limit={MAX_ROWS}&detail=1{_where('state', 'RUNNING')}")
        of_actors = [Holder(name=f"actor {_display_name(row)}", resources=_resources(row)) for row in actors]
        of_tasks = [
            Holder(name=f"task {_display_name(row)}", resources=_resources(row))
            for row in tasks
            if row.get("type") == "NORMAL_TASK"
        ]
        return (*of_actors, *of_tasks)

    async def drivers(self) -> tuple[Driver, ...]:
        """Return the programs that have not ended: jobs, Ray Client sessions and others."""
        with translated(self._http.spec):
            drivers, _ = await self._http.rows(JOBS_PATH, _live_driver)
            return tuple(drivers)

    async def _rows(self, path: str) -> list[Mapping[str, Any]]:
        with translated(self._http.spec):
            answer = parse.json_object(await self._http.call("GET", path, most=MAX_STATE_BYTES))
            try:
                rows = answer["data"]["result"]["result"]
            except (KeyError, TypeError):
                raise MalformedAnswer("it is not an answer of Ray's state API") from None
            if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
                raise MalformedAnswer("it is not a list of Ray's state API")
            return rows


def _task(row: Mapping[str, Any]) -> RemoteTask:
    return RemoteTask(
        task_id=_text(row, "task_id"),
        name=_text(row, "name"),
        state=_text(row, "state"),
        is_actor_call=row.get("type") == "ACTOR_TASK",
    )


def _live_driver(row: Mapping[str, Any]) -> Driver | None:
    if _text(row, "status") not in _LIVE:
        return None
    # Ray knows the process of a program only after the program calls `ray.init`; many jobs never do.
    process = row.get("driver_info")
    return Driver(
        job_id=_text(row, "job_id"),
        pid=_number(process.get("pid")) if isinstance(process, Mapping) else None,
        command=parse.text_or_none(row, "entrypoint") or "",
        submission_id=_text(row, "submission_id") or None,
        state=_text(row, "status"),
        metadata=parse.metadata(row),
        started_at=parse.seconds(row.get("start_time")),
    )


def _where(key: str, value: str) -> str:
    return f"&filter_keys={key}&filter_predicates=%3D&filter_values={value}"


def _display_name(row: Mapping[str, Any]) -> str:
    return _text(row, "name") or _text(row, "class_name")


def _resources(row: Mapping[str, Any]) -> dict[str, float]:
    required = row.get("required_resources")
    amounts = required.items() if isinstance(required, Mapping) else ()
    return {str(name): float(amount) for name, amount in amounts if isinstance(amount, (int, float))}


def _text(row: Mapping[str, Any], name: str) -> str:
    return parse.short(parse.word(row.get(name) or ""))


def _number(value: Any) -> int | None:
    """Return a process id, which Ray writes as a number or as a text."""
    is_text = isinstance(value, str) and value.isdecimal() and len(value) < _DIGITS
    return parse.whole(int(value) if is_text else value)


# Versions, nodes and usage of a Ray cluster, read over HTTP.


#: The limit of Ray's state API; its default of 100 would hide further nodes.
MAX_NODES = 10_000


class HttpClusterProbe:
    """`ports.ClusterProbe` over HTTP."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def version(self) -> RemoteVersion:
        """See `ports.ClusterProbe`."""
        with translated(self._http.spec):
            return parse.version(parse.json_object(await self._http.call("GET", "/api/version")))

    async def python_version(self) -> str | None:
        """See `ports.ClusterProbe`."""
        try:
            with translated(self._http.spec):
                answer = await self._http.call("GET", "/api/v0/cluster_metadata")
                return parse.python_version(parse.json_object(answer))
        except ClusterRefused as error:
            if error.status == 404:
                return None
            raise

    async def nodes(self) -> tuple[Node, ...]:
        """See `ports.ClusterProbe`."""
        with translated(self._http.spec):
            answer = await self._http.call("GET", f"/api/v0/nodes?limit={MAX_NODES}")
            return parse.nodes(parse.json_object(answer))

    async def usage(self) -> Usage:
        """See `ports.ClusterProbe`."""
        deadline = asyncio.get_running_loop().time() + self._http.request_timeout_s
        with translated(self._http.spec):
            answer = parse.json_object(await self._http.call("GET", "/api/cluster_status"))
            if (usage := parse.usage(answer)) is not None:
                return usage
            left_s = max(deadline - asyncio.get_running_loop().time(), 0.001)
            raw = await self._http.call("GET", "/api/cluster_status?format=1", timeout_s=left_s)
            return parse_usage_text(parse.status_text(parse.json_object(raw)))

    async def driver(self, job_id: str) -> SessionDriver | None:
        """See `ports.ClusterProbe`."""
        try:
            with translated(self._http.spec):
                answer = await self._http.call("GET", f"{JOBS_PATH}{quote(job_id, safe='')}")
                return parse.driver(parse.json_object(answer))
        except ClusterRefused as error:
            if error.status == 404:
                return None
            raise

    async def jobs(self, keep: Callable[[InventoryRow], bool] = lambda _: True) -> Inventory:
        """See `ports.ClusterProbe`."""

        def read(row: Mapping[str, Any]) -> Sighting | None:
            entry = parse.inventory_row(row)
            is_kept = entry is not None and keep(entry) and not entry.is_driver
            return parse.sighting(row) if is_kept else None

        with translated(self._http.spec):
            sightings, remembered = await self._http.rows(JOBS_PATH, read)
        return Inventory(sightings=tuple(sightings), remembered=remembered)


# Package upload to a Ray cluster over HTTP.


UPLOAD_TIMEOUT_S = 300.0


class HttpClusterPackages:
    """`ports.ClusterPackages` over HTTP."""

    def __init__(self, http: HttpClient, *, upload_timeout_s: float = UPLOAD_TIMEOUT_S) -> None:
        self._http = http
        self._upload_timeout_s = upload_timeout_s

    async def has_package(self, name: str) -> bool:
        """See `ports.ClusterPackages`."""
        try:
            with translated(self._http.spec):
                await self._http.call("GET", _package_path(name))
        except ClusterRefused as error:
            if error.status == 404 and error.body.endswith("does not exist"):
                return False
            raise
        return True

    async def put_package(self, name: str, content: Path) -> None:
        """See `ports.ClusterPackages`."""
        # Not opened in a thread: a caller that is cancelled meanwhile would never get the file to close it.
        with content.open("rb") as file, translated(self._http.spec):
            await self._http.call("PUT", _package_path(name), data=file, timeout_s=self._upload_timeout_s)


def _package_path(name: str) -> str:
    return f"/api/packages/gcs/{quote(name, safe='')}"


def open_connection(
    spec: ClusterSpec,
    environ: Mapping[str, str],
    *,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
    upload_timeout_s: float = UPLOAD_TIMEOUT_S,
) -> HttpConnection:
    """Return the connection to a cluster, with its token from the environment variables in `environ`.

    A missing variable raises no error here, because it must not prevent the use of other clusters. Calls to a
    cluster that needs the token fail with `ClusterAuthFailed`, which names the variable.
    """
    token = environ.get(spec.auth_token_env, "").strip() if spec.auth_token_env else ""
    return HttpConnection(
        spec,
        token=token or None,
        request_timeout_s=request_timeout_s,
        upload_timeout_s=upload_timeout_s,
    )


class HttpConnection:
    """`ports.ClusterConnection` over HTTP. Its parts share one client, which connects with the first call."""

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        token: str | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        upload_timeout_s: float = UPLOAD_TIMEOUT_S,
    ) -> None:
        self.spec = spec
        #: Specific to Ray, and so not part of the port: the client of its REST API, and what runs inside.
        self.http = HttpClient(spec, token=token, request_timeout_s=request_timeout_s)
        self.state = ClusterState(self.http)
        self.probe = HttpClusterProbe(self.http)
        self.packages = HttpClusterPackages(self.http, upload_timeout_s=upload_timeout_s)

    def __repr__(self) -> str:
        return f"HttpConnection({self.spec.name!r})"

    async def __aenter__(self) -> HttpConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """See `ports.ClusterConnection`."""
        await self.http.close()
