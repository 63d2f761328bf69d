"""One Ray cluster over HTTP: `ports.RayApi` on aiohttp."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from ray_multicluster_scheduler.errors import (
    ClusterAuthFailed,
    ClusterRefused,
    ClusterUnreachable,
)
from ray_multicluster_scheduler.model.cluster import ClusterSpec, Node, Usage
from ray_multicluster_scheduler.model.remote import Listing, RemoteJob, RemoteSubmit, RemoteVersion
from ray_multicluster_scheduler.ray_api import parse
from ray_multicluster_scheduler.ray_api.errors import MalformedAnswer, refusal, translated
from ray_multicluster_scheduler.ray_api.pieces import beginning, pieces
from ray_multicluster_scheduler.ray_api.stream import LogEnd, Rows
from ray_multicluster_scheduler.ray_api.telling import tell_call
from ray_multicluster_scheduler.ray_api.usage_text import parse_usage_text

#: Which rows of a list are wanted, by what Ray says of them.
Keep = Callable[[Mapping[str, Any]], bool]

REQUEST_TIMEOUT_S = 10.0
UPLOAD_TIMEOUT_S = 300.0
#: Parsed in one go, which stops everything else in this process for a tenth of a second at most. The nodes of
#: the largest clusters (Ray hands out 10,000 rows) are the largest such answer.
MAX_ANSWER_BYTES = 4 * 2**20
#: Read row by row: about 400,000 jobs. Who remembers more is asked for single jobs only.
MAX_LIST_BYTES = 256 * 2**20
#: Of a longer log its end is returned, with a line that says so.
MAX_LOG_BYTES = 32 * 2**20
#: Nobody keeps more of a log than its end; all of it has to pass by to get there.
MAX_STREAM_BYTES = 2**30
#: A log may take so many deadlines of a call while it keeps coming.
LOG_DEADLINES = 6
#: Largest frame of a tailed log; Ray sends about 20,000 characters in one.
MAX_FRAME_BYTES = 4 * 2**20
#: Nobody listens behind a connection that is not made by then; never more than half of the deadline.
CONNECT_TIMEOUT_S = 5.0
#: How often a quiet tail is asked whether it is alive.
TAIL_HEARTBEAT_S = 20.0
#: Ray does not read from a tail, so it never confirms that we leave: do not wait for it.
TAIL_CLOSE_S = 0.01
#: The most that Ray's state API hands out; its default of 100 would hide the other nodes.
MAX_NODES = 10_000


def open_ray_api(
    spec: ClusterSpec,
    environ: Mapping[str, str],
    *,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
    upload_timeout_s: float = UPLOAD_TIMEOUT_S,
) -> HttpRayApi:
    """Return the client for a cluster, with its token out of the environment.

    A missing variable is no error here, so that one cluster cannot keep the others from being watched:
    the calls to a cluster that wants the token fail with `ClusterAuthFailed`, which names the variable.
    """
    token = environ.get(spec.auth_token_env, "").strip() if spec.auth_token_env else ""
    return HttpRayApi(
        spec,
        token=token or None,
        request_timeout_s=request_timeout_s,
        upload_timeout_s=upload_timeout_s,
    )


class HttpRayApi:
    """The calls of `ports.RayApi`, each with one deadline over connecting, sending and reading.

    It has its own connections, token and TLS settings: nothing is shared with another cluster, so that
    neither a hanging cluster nor a wrong token can reach one.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        token: str | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        upload_timeout_s: float = UPLOAD_TIMEOUT_S,
    ) -> None:
        self._spec = spec
        self._token = token
        self._request_timeout_s = request_timeout_s
        self._upload_timeout_s = upload_timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"HttpRayApi({self._spec.name!r})"

    async def __aenter__(self) -> HttpRayApi:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def version(self) -> RemoteVersion:
        """See `ports.RayApi`."""
        with translated(self._spec):
            return parse.version(parse.json_object(await self._call("GET", "/api/version")))

    async def python_version(self) -> str | None:
        """See `ports.RayApi`."""
        try:
            with translated(self._spec):
                answer = await self._call("GET", "/api/v0/cluster_metadata")
                return parse.python_version(parse.json_object(answer))
        except ClusterRefused as error:
            if error.status == 404:
                return None
            raise

    async def nodes(self) -> tuple[Node, ...]:
        """See `ports.RayApi`."""
        with translated(self._spec):
            return parse.nodes(parse.json_object(await self._call("GET", f"/api/v0/nodes?limit={MAX_NODES}")))

    async def usage(self) -> Usage:
        """See `ports.RayApi`."""
        deadline = asyncio.get_running_loop().time() + self._request_timeout_s
        with translated(self._spec):
            answer = parse.json_object(await self._call("GET", "/api/cluster_status"))
            if (usage := parse.usage(answer)) is not None:
                return usage
            left_s = max(deadline - asyncio.get_running_loop().time(), 0.001)
            raw = await self._call("GET", "/api/cluster_status?format=1", timeout_s=left_s)
            return parse_usage_text(parse.status_text(parse.json_object(raw)))

    async def submit_job(self, request: RemoteSubmit) -> None:
        """See `ports.RayApi`."""
        with translated(self._spec):
            raw = await self._call("POST", "/api/jobs/", json=_body(request), hidden=_secrets(request))
            if parse.json_object(raw).get("submission_id") != request.submission_id:
                raise MalformedAnswer("it confirms another submission id than the one that was sent")

    async def get_job(self, submission_id: str) -> RemoteJob:
        """See `ports.RayApi`."""
        with translated(self._spec):
            return parse.job(parse.json_object(await self._call("GET", _job_path(submission_id))))

    async def list_jobs(self, keep: Keep = lambda _: True) -> Listing:
        """See `ports.RayApi`."""
        with translated(self._spec):
            rows, remembered = await self._list(keep)
            return Listing(jobs=parse.jobs(rows), remembered=remembered)

    async def _list(self, keep: Keep) -> tuple[list[Mapping[str, Any]], int]:
        """Return those rows of the job list that `keep` wants, and how many there are."""
        rows, kept, listed = Rows(), list[Mapping[str, Any]](), 0
        async with self._answer("GET", "/api/jobs/") as response:
            async for piece in pieces(response, MAX_LIST_BYTES):
                found = rows.feed(piece) if piece else rows.end()
                listed += len(found)
                kept += filter(keep, found)
        return kept, listed

    async def stop_job(self, submission_id: str) -> bool:
        """See `ports.RayApi`."""
        with translated(self._spec):
            raw = await self._call("POST", f"{_job_path(submission_id)}/stop")
            return parse.flag(parse.json_object(raw), "stopped")

    async def delete_job(self, submission_id: str) -> None:
        """See `ports.RayApi`."""
        with translated(self._spec):
            await self._call("DELETE", _job_path(submission_id))

    async def job_logs(self, submission_id: str, *, last_bytes: int = MAX_LOG_BYTES) -> str:
        """See `ports.RayApi`."""
        end = LogEnd(last_bytes)
        total_s = LOG_DEADLINES * self._request_timeout_s
        timeout = aiohttp.ClientTimeout(
            total=total_s, sock_connect=_connect_s(self._request_timeout_s), sock_read=self._request_timeout_s
        )
        with translated(self._spec):
            try:
                async with self._answer(
                    "GET", f"{_job_path(submission_id)}/logs", timeout=timeout
                ) as response:
                    async for piece in pieces(response, MAX_STREAM_BYTES):
                        end.feed(piece)
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
                if not end.begun:
                    raise
                return end.text(complete=False)
            return end.text()

    async def tail_job_logs(self, submission_id: str) -> AsyncGenerator[str, None]:
        """See `ports.RayApi`."""
        path = f"{_job_path(submission_id)}/logs/tail"
        try:
            with translated(self._spec):
                socket = await self._open_session().ws_connect(
                    self._url(path),
                    heartbeat=TAIL_HEARTBEAT_S,
                    max_msg_size=MAX_FRAME_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=TAIL_CLOSE_S),
                )
        except ClusterRefused:
            await self.get_job(submission_id)  # a refused handshake has no words: ask for the reason
            raise
        async with socket:
            with translated(self._spec):
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        yield message.data
                if socket.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE:
                    raise socket.exception() or aiohttp.ServerDisconnectedError()

    async def has_package(self, name: str) -> bool:
        """See `ports.RayApi`."""
        try:
            with translated(self._spec):
                await self._call("GET", _package_path(name))
        except ClusterRefused as error:
            if error.status == 404 and error.body.endswith("does not exist"):
                return False
            raise
        return True

    async def put_package(self, name: str, content: Path) -> None:
        """See `ports.RayApi`."""
        with await asyncio.to_thread(content.open, "rb") as file, translated(self._spec):
            await self._call("PUT", _package_path(name), data=file, timeout_s=self._upload_timeout_s)

    async def close(self) -> None:
        """See `ports.RayApi`."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _call(
        self,
        method: str,
        path: str,
        *,
        json: Mapping[str, Any] | None = None,
        data: Any = None,
        timeout_s: float | None = None,
        most: int | None = None,
        hidden: Collection[str] = (),
    ) -> bytes:
        """Make one call and return the body of its success, of at most `most` bytes."""
        timeout = _timeout(timeout_s or self._request_timeout_s)
        body = bytearray()
        async with self._answer(
            method, path, json=json, data=data, timeout=timeout, hidden=hidden
        ) as response:
            async for piece in pieces(response, most or MAX_ANSWER_BYTES):
                body += piece
        return bytes(body)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        *,
        json: Mapping[str, Any] | None = None,
        data: Any = None,
        timeout: aiohttp.ClientTimeout | None = None,
        hidden: Collection[str] = (),
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make one call and hand out its answer, unread, when it is a success."""
        with tell_call(self._spec.name, method, path) as answered:
            async with self._open_session().request(
                method,
                self._url(path),
                json=json,
                data=data,
                timeout=timeout or _timeout(self._request_timeout_s),
                allow_redirects=False,
            ) as response:
                answered(response.status)
                if response.status != 200:
                    words = (await beginning(response)).decode("utf-8", "replace")
                    secrets = [*hidden, *([self._token] if self._token else [])]
                    raise refusal(self._spec, response.status, words, hidden=secrets)
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    raise MalformedAnswer("it is packed, which it was asked not to be")
                yield response

    def _url(self, path: str) -> URL:
        return URL(self._spec.dashboard.rstrip("/") + path, encoded=True)

    def _open_session(self) -> aiohttp.ClientSession:
        """Return the session, made at the first call because it belongs to the running loop."""
        if self._closed:
            raise ClusterUnreachable(self._spec.name, "its connections were closed, and nothing was sent")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # No limit on connections: a tail holds one as long as its job runs.
                connector=aiohttp.TCPConnector(limit=0, ssl=self._tls()),
                timeout=_timeout(self._request_timeout_s),
                headers=self._headers(),
                # A few packed bytes can become gigabytes, and would be unpacked while all others wait.
                auto_decompress=False,
                trace_configs=[_no_redirects(self._spec)],
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session

    def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": "ray-multicluster-scheduler", "Accept-Encoding": "identity"}
        if self._token is None:
            return headers
        if not (self._token.isascii() and self._token.isprintable()):
            raise ClusterAuthFailed(
                self._spec.name,
                f"the token in {self._spec.auth_token_env} cannot be sent: it holds a line break "
                "or another character that HTTP does not allow",
            )
        return {**headers, "Authorization": f"Bearer {self._token}"}

    def _tls(self) -> ssl.SSLContext | bool:
        if self._spec.tls_ca is None:
            return True
        try:
            return ssl.create_default_context(cafile=self._spec.tls_ca)
        except OSError as error:
            raise ClusterUnreachable(
                self._spec.name, f"the certificates in `tls_ca` ({self._spec.tls_ca}) cannot be read: {error}"
            ) from error


def _timeout(total_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total_s, sock_connect=_connect_s(total_s))


def _connect_s(total_s: float) -> float:
    return min(CONNECT_TIMEOUT_S, total_s / 2)


def _no_redirects(spec: ClusterSpec) -> aiohttp.TraceConfig:
    """Refuse to follow a redirect: for a tail, aiohttp has no other way to say so."""

    async def refuse(
        _session: object, _context: object, redirect: aiohttp.TraceRequestRedirectParams
    ) -> None:
        raise refusal(spec, redirect.response.status, "")

    tracing = aiohttp.TraceConfig()
    tracing.on_request_redirect.append(refuse)
    return tracing


def _job_path(submission_id: str) -> str:
    return f"/api/jobs/{quote(submission_id, safe='')}"


def _package_path(name: str) -> str:
    return f"/api/packages/gcs/{quote(name, safe='')}"


def _body(request: RemoteSubmit) -> dict[str, Any]:
    options = {
        "entrypoint_num_cpus": request.entrypoint_num_cpus,
        "entrypoint_num_gpus": request.entrypoint_num_gpus,
        "entrypoint_memory": request.entrypoint_memory,
        "entrypoint_resources": request.entrypoint_resources and dict(request.entrypoint_resources),
        "entrypoint_label_selector": request.entrypoint_label_selector
        and dict(request.entrypoint_label_selector),
    }
    return {
        "submission_id": request.submission_id,
        "entrypoint": request.entrypoint,
        "runtime_env": dict(request.runtime_env),
        "metadata": dict(request.metadata),
        **{name: value for name, value in options.items() if value is not None},
    }


def _secrets(request: RemoteSubmit) -> list[str]:
    env_vars = request.runtime_env.get("env_vars")
    return [str(value) for value in env_vars.values()] if isinstance(env_vars, Mapping) else []
