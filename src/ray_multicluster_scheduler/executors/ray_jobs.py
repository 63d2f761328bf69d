"""Runs attempts as jobs of Ray's Jobs API over HTTP. Its version 4 is the same in Ray 2.9 and 2.60."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp

from ray_multicluster_scheduler.asyncio_tools import together
from ray_multicluster_scheduler.errors import (
    ClusterBadAnswer,
    ClusterRefused,
    ClusterTimeout,
    RemoteJobNotFound,
)
from ray_multicluster_scheduler.model.execution import (
    Inventory,
    InventoryRow,
    Sighting,
    StartRequest,
)
from ray_multicluster_scheduler.ray_api import parse
from ray_multicluster_scheduler.ray_api.http_client import JOBS_PATH, LogEnd, body_chunks, connect_s
from ray_multicluster_scheduler.ray_api.http_connection import HttpConnection
from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer, translated

#: Up to SINGLE_READS + listed / LISTED_PER_READ jobs are read one by one: beyond that a single list call is
#: cheaper for the cluster, although Ray lists every job that it remembers.
SINGLE_READS = 4
LISTED_PER_READ = 20
READS_AT_ONCE = 16
#: Only the end of a longer log is returned, after a line that says so.
MAX_LOG_BYTES = 32 * 2**20
#: Ray has no way to read only the end of a log, so up to this much is read to get there.
MAX_STREAM_BYTES = 2**30
#: While data keeps arriving, reading a log may take this many times the deadline of a call.
LOG_DEADLINES = 6
#: Largest frame of a followed log; Ray sends about 20,000 characters in one.
MAX_FRAME_BYTES = 4 * 2**20
#: Interval of pings on a web socket without data.
TAIL_HEARTBEAT_S = 20.0
#: Ray does not read from this web socket, so it never confirms that we close it: do not wait for that.
TAIL_CLOSE_S = 0.01


class RayJobsExecutor:
    """`Executor` on Ray's Jobs API."""

    def __init__(self, connection: HttpConnection) -> None:
        self._http = connection.http
        self._probe = connection.probe
        self._reads = asyncio.Semaphore(READS_AT_ONCE)
        #: Length of the job list when it was last read; None if unknown, or if it cannot be read.
        self._remembered: int | None = None

    async def start(self, request: StartRequest) -> None:
        """See `Executor`."""
        with translated(self._http.spec):
            raw = await self._http.call("POST", JOBS_PATH, json=_body(request), hidden=_secrets(request))
            if parse.json_object(raw).get("submission_id") != request.remote_id:
                raise MalformedAnswer("it confirms another submission id than the one that was sent")

    async def get(self, remote_id: str) -> Sighting:
        """See `Executor`."""
        with translated(self._http.spec):
            return parse.sighting(parse.json_object(await self._http.call("GET", _job_path(remote_id))))

    async def observe(self, remote_ids: Collection[str]) -> Mapping[str, Sighting]:
        """See `Executor`."""
        wanted = frozenset(remote_ids)
        sightings = await self._listed(wanted)
        if sightings is None:
            reads = await together(self._read_one(remote_id) for remote_id in wanted)
            sightings = tuple(sighting for sighting in reads if sighting is not None)
        return {each.remote_id: each for each in sightings if each.remote_id in wanted}

    async def _listed(self, wanted: frozenset[str]) -> tuple[Sighting, ...] | None:
        """Return these jobs from the job list; None if it cannot be read or single reads are cheaper."""
        if self._remembered is None or len(wanted) <= SINGLE_READS + self._remembered / LISTED_PER_READ:
            return None
        try:
            return (await self.inventory(lambda row: row.remote_id in wanted)).sightings
        except (ClusterTimeout, ClusterBadAnswer):
            self._remembered = None
            return None

    async def _read_one(self, remote_id: str) -> Sighting | None:
        async with self._reads:
            try:
                return await self.get(remote_id)
            except RemoteJobNotFound:
                return None

    async def inventory(self, keep: Callable[[InventoryRow], bool] = lambda _: True) -> Inventory:
        """See `Executor`."""
        found = await self._probe.jobs(keep)
        self._remembered = found.remembered
        return found

    async def stop(self, remote_id: str) -> bool:
        """See `Executor`."""
        with translated(self._http.spec):
            raw = await self._http.call("POST", f"{_job_path(remote_id)}/stop")
            return parse.flag(parse.json_object(raw), "stopped")

    async def delete(self, remote_id: str) -> None:
        """See `Executor`."""
        with translated(self._http.spec):
            await self._http.call("DELETE", _job_path(remote_id))

    async def log(self, remote_id: str, *, last_bytes: int = MAX_LOG_BYTES) -> str:
        """See `Executor`."""
        end, deadline_s = LogEnd(last_bytes), self._http.request_timeout_s
        timeout = aiohttp.ClientTimeout(
            total=LOG_DEADLINES * deadline_s, sock_connect=connect_s(deadline_s), sock_read=deadline_s
        )
        with translated(self._http.spec):
            try:
                path = f"{_job_path(remote_id)}/logs"
                async with self._http.answer("GET", path, timeout=timeout) as response:
                    async for chunk in body_chunks(response, MAX_STREAM_BYTES):
                        end.feed(chunk)
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
                if not end.begun:
                    raise
                return end.text(complete=False)
            return end.text()

    async def follow_log(self, remote_id: str) -> AsyncGenerator[str, None]:
        """See `Executor`."""
        path = f"{_job_path(remote_id)}/logs/tail"
        try:
            with translated(self._http.spec):
                socket = await self._http.session().ws_connect(
                    self._http.url(path),
                    heartbeat=TAIL_HEARTBEAT_S,
                    max_msg_size=MAX_FRAME_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=TAIL_CLOSE_S),
                )
        except ClusterRefused:
            await self.get(remote_id)  # a refused handshake carries no reason: this call raises it
            raise
        async with socket:
            with translated(self._http.spec):
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        yield message.data
                if socket.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE:
                    raise socket.exception() or aiohttp.ServerDisconnectedError()


def _job_path(remote_id: str) -> str:
    return f"{JOBS_PATH}{quote(remote_id, safe='')}"


def _body(request: StartRequest) -> dict[str, Any]:
    options = {
        "entrypoint_num_cpus": request.entrypoint_num_cpus,
        "entrypoint_num_gpus": request.entrypoint_num_gpus,
        "entrypoint_memory": request.entrypoint_memory,
        "entrypoint_resources": request.entrypoint_resources and dict(request.entrypoint_resources),
        "entrypoint_label_selector": request.entrypoint_label_selector
        and dict(request.entrypoint_label_selector),
    }
    return {
        "submission_id": request.remote_id,
        "entrypoint": request.entrypoint,
        "runtime_env": dict(request.runtime_env),
        "metadata": dict(request.metadata),
        **{name: value for name, value in options.items() if value is not None},
    }


def _secrets(request: StartRequest) -> list[str]:
    env_vars = request.runtime_env.get("env_vars")
    return [str(value) for value in env_vars.values()] if isinstance(env_vars, Mapping) else []
