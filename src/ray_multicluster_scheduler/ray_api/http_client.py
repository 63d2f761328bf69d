"""HTTP calls to the dashboard of one Ray cluster, on aiohttp, and parsers for answers of any length."""

from __future__ import annotations

import asyncio
import codecs
import json
import logging
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from ray_multicluster_scheduler.errors import ClusterAuthFailed, ClusterUnreachable
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.job import INCOMPLETE, cut_note
from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer, refusal

# Incremental parsers for answers of any length: they never hold a whole answer or block for long.
#
# A JSON parser blocks the process, so an answer of many megabytes from one cluster would delay the work
# for all others. Here each row of a list and each chunk of a log is parsed on its own.

#: The longest row of a list.
MAX_ROW_CHARS = 4 * 2**20
_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder()
_LOG_BEGINS = re.compile(r'\s*\{\s*"logs"\s*:\s*"')
#: As many complete characters and complete escapes of a JSON text as possible.
_WHOLE = re.compile(r'(?:[^"\\]+|\\u[0-9a-fA-F]{4}|\\[^u])*')
_LONGEST_ESCAPE = len("\\u0000")
_LONGEST_BEGINNING = 1000


class RowParser:
    """Parses the objects of a JSON array that arrives in chunks."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        #: What has come since the last try, and how much. The next try needs as much again as there was: a
        #: long row is neither copied nor parsed for each chunk.
        self._new: list[str] = []
        self._new_chars = self._retry_chars = 0
        self._expected = "["

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        """Add the next chunk and return the rows that are complete now."""
        self._new.append(self._decode(chunk))
        self._new_chars += len(self._new[-1])
        return self._take() if self._new_chars >= self._retry_chars else []

    def end(self) -> list[dict[str, Any]]:
        """Return the last rows; raise if the array is incomplete."""
        rows = self._take()
        if self._expected or self._text.strip(_SPACE):
            raise MalformedAnswer("its list breaks off")
        return rows

    def _take(self) -> list[dict[str, Any]]:
        self._text += "".join(self._new)
        self._new, self._new_chars = [], 0
        rows: list[dict[str, Any]] = []
        at = 0
        while self._expected and (at := self._after_space(at)) < len(self._text):
            mark = self._text[at]
            if mark == "{" and "{" in self._expected:
                try:
                    row, at = _DECODER.raw_decode(self._text, at)
                except json.JSONDecodeError:
                    break
                rows.append(row)
                self._expected = ",]"
            elif mark not in self._expected or mark == "{":
                raise MalformedAnswer(f"{mark!r} has no place in a list of objects")
            else:
                at += 1
                self._expected = {"[": "{]", ",": "{", "]": ""}[mark]
        self._text = self._text[at:]
        self._retry_chars = len(self._text)
        if len(self._text) > MAX_ROW_CHARS:
            raise MalformedAnswer("a row of its list is too long or not JSON")
        return rows

    def _after_space(self, at: int) -> int:
        while at < len(self._text) and self._text[at] in _SPACE:
            at += 1
        return at


class LogEnd:
    """Keeps the last `keep_bytes` of the log in `{"logs": "..."}`, which arrives in chunks."""

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        self._begun = self._closed = False
        #: The first half of a surrogate pair, whose second half may be in the next chunk.
        self._half = ""
        self._end = bytearray()
        self._missing = 0

    @property
    def begun(self) -> bool:
        """Tell whether anything of the log was read."""
        return bool(self._end or self._missing)

    def feed(self, chunk: bytes) -> None:
        """Add the next chunk."""
        self._text += self._decode(chunk)
        if not self._begun and not self._begin():
            return
        if self._closed:
            self._text = ""
            return
        whole = _WHOLE.match(self._text)
        assert whole is not None
        rest = self._text[whole.end() :]
        self._closed = rest.startswith('"')
        if not self._closed and len(rest) > _LONGEST_ESCAPE:
            raise MalformedAnswer("its text contains an invalid JSON escape")
        self._add(json.loads(f'"{whole[0]}"', strict=False))
        self._text = rest

    def text(self, *, complete: bool = True) -> str:
        """Return the end of the log, with a note about missing bytes before it and, if so, after it."""
        if complete and not self._closed:
            raise MalformedAnswer("its log breaks off")
        self._drop(len(self._end) - self._keep_bytes)
        while self._end and self._end[0] & 0xC0 == 0x80:  # do not start inside a character
            self._drop(1)
        return cut_note(self._missing) + self._end.decode() + ("" if complete else INCOMPLETE)

    def _begin(self) -> bool:
        match = _LOG_BEGINS.match(self._text)
        if match is None:
            if len(self._text) > _LONGEST_BEGINNING or not '{"logs":"'.startswith(_squeezed(self._text)[:9]):
                raise MalformedAnswer("'logs' must be a text")
            return False
        self._begun, self._text = True, self._text[match.end() :]
        return True

    def _add(self, text: str) -> None:
        text = self._half + text
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        joined = text[: len(text) - len(self._half)].encode("utf-16-le", "surrogatepass")
        self._end += joined.decode("utf-16-le", "replace").replace("\0", "?").encode()
        if len(self._end) > 2 * self._keep_bytes + 2**16:
            self._drop(len(self._end) - self._keep_bytes)

    def _drop(self, count: int) -> None:
        if count > 0:
            del self._end[:count]
            self._missing += count


def _squeezed(text: str) -> str:
    return "".join(text.split())


# Reads response bodies of unknown length in chunks.


CHUNK_BYTES = 2**16
#: After the first UNPACED_BYTES of a body, the CPU time spent on each chunk is followed by a pause of
#: PAUSE_FACTOR times as long, which leaves most of the time to other clusters.
UNPACED_BYTES = 2**20
PAUSE_FACTOR = 3.0
#: Only the beginning of an error body is read (a traceback of Ray has 1 to 3 kB).
MAX_ERROR_BYTES = 64 * 2**10


async def body_chunks(response: aiohttp.ClientResponse, most: int) -> AsyncIterator[bytes]:
    """Yield the chunks of a body, and `b""` at its end. Pauses between the chunks of a long body."""
    size = 0
    while chunk := await response.content.read(CHUNK_BYTES):
        size += len(chunk)
        if size > most:
            raise MalformedAnswer(f"it is longer than {most} bytes")
        began = time.thread_time()
        yield chunk
        if size > UNPACED_BYTES:
            await asyncio.sleep(PAUSE_FACTOR * (time.thread_time() - began))
    yield b""


async def error_body(response: aiohttp.ClientResponse) -> bytes:
    """Read the body of an error, up to `MAX_ERROR_BYTES`."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(MAX_ERROR_BYTES):
        body += chunk
        if len(body) >= MAX_ERROR_BYTES:
            break
    return bytes(body[:MAX_ERROR_BYTES])


# Debug log of HTTP calls to clusters, without bodies, queries and headers, which may hold secrets.


log = logging.getLogger(__name__)


@contextmanager
def log_call(cluster: str, method: str, path: str) -> Iterator[Callable[[int], None]]:
    """Log a call and its outcome at DEBUG; yields a function that takes the HTTP status."""
    began_at, status = time.monotonic(), list[int]()
    try:
        yield status.append
    finally:
        took_ms = 1000 * (time.monotonic() - began_at)
        where, answer = path.partition("?")[0], status[0] if status else "no answer"
        log.debug("%s: %s %s: %s after %.0f ms", cluster, method, where, answer, took_ms)


T = TypeVar("T")

JOBS_PATH = "/api/jobs/"
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
