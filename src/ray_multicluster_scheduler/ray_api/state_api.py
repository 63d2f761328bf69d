"""Actors, tasks and drivers (jobs, Ray Client sessions) inside one Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.ray_api import parse
from ray_multicluster_scheduler.ray_api.http_client import JOBS_PATH, HttpClient
from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer, translated

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
