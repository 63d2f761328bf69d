"""Runs attempts as jobs of Ray's Jobs API over HTTP. Its version 4 is the same in Ray 2.9 and 2.60.

A job leaves its result in a file among the logs of its node, which the dashboard shows (`_ResultFiles`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

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
from ray_multicluster_scheduler.model.result import MAX_FILE_BYTES, TOO_LARGE, LeftResult
from ray_multicluster_scheduler.ray_api import parse
from ray_multicluster_scheduler.ray_api.http_client import JOBS_PATH, LogEnd, body_chunks, connect_s
from ray_multicluster_scheduler.ray_api.http_connection import HttpConnection
from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer, translated
from ray_multicluster_scheduler.text import visible

log = logging.getLogger(__name__)

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
        self._files = _ResultFiles(connection)
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

    async def result_place(self, remote_id: str, *, session_name: str | None) -> str | None:
        """See `Executor`."""
        place = await self._files.place(session_name)
        return None if place is None else f"{place.directory}/{_result_name(remote_id)}"

    async def result(self, remote_id: str) -> LeftResult | None:
        """See `Executor`."""
        node_id = (await self.get(remote_id)).node_id
        return None if node_id is None else await self._files.read(node_id, _result_name(remote_id))

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


# The files in which jobs leave their results: in the directory of logs of the node that the driver is on.
#
# Ray's dashboard lists and shows what is there, of every node, through its own port. No other place of a node
# can be read so.

_RESULT = "raymc-result"
_NOT_THERE = "A file is not found at: "
#: Ray 2.9 puts a byte before each block of a file: 1, or 0 and then an error instead of the block.
_BLOCK_BYTES = 2**16
#: Pauses before each question where the files are; a cluster that does not tell is left alone for a while.
ASK_AFTER_S = (0.0, 0.5, 1.0, 1.5)
ASK_AGAIN_S = 60.0
_ROOM = MAX_FILE_BYTES + MAX_FILE_BYTES // _BLOCK_BYTES + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the logs of a session are, and how its dashboard shows them."""

    session_name: str | None
    directory: str
    marks_blocks: bool


class _ResultFiles:
    """The result files of one cluster."""

    def __init__(self, connection: HttpConnection) -> None:
        self._http = connection.http
        self._probe = connection.probe
        self._known: _Place | None = None
        self._asking = asyncio.Lock()
        #: It did not tell where they are, and is not asked again before this time of the loop.
        self._asked_again_at = 0.0

    async def place(self, session_name: str | None) -> _Place | None:
        """Return where they are in this session of the head."""
        async with self._asking:  # a hundred jobs that are sent at once ask once
            known = self._known
            if session_name is None or known is None or known.session_name != session_name:
                self._known = await self._ask(session_name)
            return self._known

    async def _ask(self, session_name: str | None) -> _Place | None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._asked_again_at:
            return None
        for pause_s in ASK_AFTER_S:  # a head takes jobs some seconds before it shows files
            await asyncio.sleep(pause_s)
            heads = [node.node_id for node in await self._probe.nodes() if node.is_head and node.alive]
            if heads and (place := await self._find(heads[0], session_name)) is not None:
                return place
        self._asked_again_at = loop.time() + ASK_AGAIN_S
        log.warning(
            "cluster %r does not tell where its logs are: its jobs can leave no result", self._http.spec.name
        )
        return None

    async def _find(self, node_id: str, session_name: str | None) -> _Place | None:
        """Ask for a file that is not there: the answer says where it was looked for."""
        try:
            with translated(self._http.spec):
                answer = await self._http.call("GET", _file_path(node_id, _RESULT))
            words, marks_blocks = answer.decode("utf-8", "replace"), True
        except ClusterRefused as error:
            words, marks_blocks = error.body, False
        path = words.partition(_NOT_THERE)[2].rstrip()
        directory, _, name = path.rpartition("/")
        if name != _RESULT or "\n" in directory:
            log.info(
                "cluster %r does not tell where its logs are: %s", self._http.spec.name, visible(words[:200])
            )
            return None
        return _Place(session_name=session_name, directory=directory, marks_blocks=marks_blocks)

    async def read(self, node_id: str, name: str) -> LeftResult | None:
        """Return a file of a node; None: it is not there."""
        with translated(self._http.spec):
            query = urlencode({"node_id": node_id, "glob": name})
            listed = parse.json_object(await self._http.call("GET", f"/api/v0/logs?{query}"))
            if name not in _names(listed):
                return None
            place = self._known or await self._find(node_id, None)
            content = bytearray()
            async with self._http.answer("GET", _file_path(node_id, name)) as response:
                async for chunk in body_chunks(response, MAX_STREAM_BYTES):
                    content += chunk
                    if len(content) > _ROOM:
                        return TOO_LARGE
            if place is not None and place.marks_blocks:
                content = _without_marks(content)
        return TOO_LARGE if len(content) > MAX_FILE_BYTES else LeftResult(content=bytes(content))


def _result_name(remote_id: str) -> str:
    return f"{_RESULT}-{remote_id}"


def _file_path(node_id: str, name: str) -> str:
    return f"/api/v0/logs/file?{urlencode({'node_id': node_id, 'filename': name, 'lines': -1})}"


def _names(listed: Mapping[str, Any]) -> list[str]:
    match listed:
        case {"data": {"result": dict() as by_component}}:
            return [name for names in by_component.values() for name in names]
    raise MalformedAnswer("its list of logs is no mapping")


def _without_marks(content: bytearray) -> bytearray:
    blocks = [content[at : at + 1 + _BLOCK_BYTES] for at in range(0, len(content), 1 + _BLOCK_BYTES)]
    for block in blocks:
        if block[:1] != b"1":
            raise MalformedAnswer("it broke off a file with an error")
    return bytearray().join(block[1:] for block in blocks)


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
