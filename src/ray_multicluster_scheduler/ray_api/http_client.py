"""HTTP calls to the dashboard of one Ray cluster, on aiohttp: sessions, tokens, TLS and deadlines."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from ray_multicluster_scheduler.errors import ClusterAuthFailed, ClusterUnreachable
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.ray_api.body_chunks import body_chunks, error_body
from ray_multicluster_scheduler.ray_api.call_log import log_call
from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer, refusal
from ray_multicluster_scheduler.ray_api.stream import RowParser

T = TypeVar("T")

REQUEST_TIMEOUT_S = 10.0
#: An answer of this size is parsed at once, which blocks the process for a tenth of a second at most. The
#: largest such answer is the node list of the largest clusters (Ray returns 10,000 rows).
MAX_ANSWER_BYTES = 4 * 2**20
#: For lists read row by row: about 400,000 jobs. A cluster with more is queried for single jobs only.
MAX_LIST_BYTES = 256 * 2**20
#: A server that does not accept a connection by then is down. At most half of the deadline is used.
CONNECT_TIMEOUT_S = 5.0


class HttpClient:
    """Calls to one cluster, each with one deadline over connecting, sending and reading.

    It has its own connections, token and TLS settings. Nothing is shared with another cluster, so a hanging
    cluster cannot block another one, and a token cannot reach another one. It raises errors of sockets, HTTP
    and JSON; `errors.translated` turns them into ours.
    """

    def __init__(
        self, spec: ClusterSpec, *, token: str | None = None, request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        self.spec = spec
        self.request_timeout_s = request_timeout_s
        self._token = token
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def close(self) -> None:
        """Close the connections. Calls after it fail."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def call(
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
        """Make one call and return the body of a successful answer, of at most `most` bytes."""
        timeout = _timeout(timeout_s or self.request_timeout_s)
        body = bytearray()
        async with self.answer(
            method, path, json=json, data=data, timeout=timeout, hidden=hidden
        ) as response:
            async for chunk in body_chunks(response, most or MAX_ANSWER_BYTES):
                body += chunk
        return bytes(body)

    async def rows(self, path: str, read: Callable[[Mapping[str, Any]], T | None]) -> tuple[list[T], int]:
        """Return the results of `read` for the rows of a list, without None, and the number of rows.

        `read` is called while the list arrives, so that a long list leaves time for other clusters.
        """
        parser, results, count = RowParser(), list[T](), 0
        async with self.answer("GET", path) as response:
            async for chunk in body_chunks(response, MAX_LIST_BYTES):
                rows = parser.feed(chunk) if chunk else parser.end()
                count += len(rows)
                results += [result for row in rows if (result := read(row)) is not None]
        return results, count

    @asynccontextmanager
    async def answer(
        self,
        method: str,
        path: str,
        *,
        json: Mapping[str, Any] | None = None,
        data: Any = None,
        timeout: aiohttp.ClientTimeout | None = None,
        hidden: Collection[str] = (),
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make one call and yield its answer, unread, if it is successful."""
        with log_call(self.spec.name, method, path) as note_status:
            async with self.session().request(
                method,
                self.url(path),
                json=json,
                data=data,
                timeout=timeout or _timeout(self.request_timeout_s),
                allow_redirects=False,
            ) as response:
                note_status(response.status)
                if response.status != 200:
                    words = (await error_body(response)).decode("utf-8", "replace")
                    secrets = [*hidden, *([self._token] if self._token else [])]
                    raise refusal(self.spec, response.status, words, hidden=secrets)
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    raise MalformedAnswer("it is compressed, although the request asked for no compression")
                yield response

    def url(self, path: str) -> URL:
        """Return the URL of a path of the dashboard."""
        return URL(self.spec.dashboard.rstrip("/") + path, encoded=True)

    def session(self) -> aiohttp.ClientSession:
        """Return the session. It is created by the first call, because it belongs to the running loop."""
        if self._closed:
            raise ClusterUnreachable(self.spec.name, "its connections were closed, and nothing was sent")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # No limit on connections: following a log holds one as long as the job runs.
                connector=aiohttp.TCPConnector(limit=0, ssl=self._tls()),
                timeout=_timeout(self.request_timeout_s),
                headers=self._headers(),
                # A few compressed bytes can expand to gigabytes, and would block the process meanwhile.
                auto_decompress=False,
                trace_configs=[_no_redirects(self.spec)],
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
                self.spec.name,
                f"the token in {self.spec.auth_token_env} cannot be sent: it holds a line break "
                "or another character that HTTP does not allow",
            )
        return {**headers, "Authorization": f"Bearer {self._token}"}

    def _tls(self) -> ssl.SSLContext | bool:
        if self.spec.tls_ca is None:
            return True
        try:
            return ssl.create_default_context(cafile=self.spec.tls_ca)
        except OSError as error:
            raise ClusterUnreachable(
                self.spec.name, f"the certificates in `tls_ca` ({self.spec.tls_ca}) cannot be read: {error}"
            ) from error


def _timeout(total_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total_s, sock_connect=connect_s(total_s))


def connect_s(total_s: float) -> float:
    """Return the time-out for connecting, for a call with this deadline."""
    return min(CONNECT_TIMEOUT_S, total_s / 2)


def _no_redirects(spec: ClusterSpec) -> aiohttp.TraceConfig:
    """Refuse redirects. For web sockets, aiohttp has no other way to disable them."""

    async def refuse(
        _session: object, _context: object, redirect: aiohttp.TraceRequestRedirectParams
    ) -> None:
        raise refusal(spec, redirect.response.status, "")

    tracing = aiohttp.TraceConfig()
    tracing.on_request_redirect.append(refuse)
    return tracing
