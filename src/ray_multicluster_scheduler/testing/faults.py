"""The ways in which the HTTP of a fake cluster can fail, as measured on real heads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Kind = Literal["status", "lose_reply", "html", "cut", "lie"]

HTML_PAGE = "<html><body><h1>Please sign in to continue</h1></body></html>"


@dataclass(slots=True, kw_only=True)
class _Trouble:
    """What happens to the next requests below a path; `times` is None for all of them."""

    kind: Kind
    times: int | None
    only: str
    status: int = 200
    words: str = ""
    lie: Callable[[bytes], bytes] | None = None


class Faults:
    """Faults on demand. Each method says what a caller will see.

    `only` limits a fault to paths with this prefix, or to a method and a path, as in `POST /api/jobs/`.
    """

    def __init__(self) -> None:
        self._delay_s = 0.0
        self._drip_s = 0.0
        self._awake = asyncio.Event()
        self._awake.set()
        self._spared: str | None = None
        self._tails_held = False
        self._troubles: list[_Trouble] = []

    def slow(self, seconds: float) -> None:
        """Let every request wait before it is executed."""
        self._delay_s = seconds

    def drip(self, seconds: float) -> None:
        """Send every answer byte by byte, with a pause after each."""
        self._drip_s = seconds

    def fail(
        self, status: int = 500, *, times: int | None = None, only: str = "", words: str | None = None
    ) -> None:
        """Answer with an error status and these words instead of executing."""
        said = f"{status}: this failure was asked for" if words is None else words
        self._troubles.append(_Trouble(kind="status", times=times, only=only, status=status, words=said))

    def lose_reply(self, times: int = 1, *, only: str = "") -> None:
        """Execute a request, then drop the connection instead of answering."""
        self._troubles.append(_Trouble(kind="lose_reply", times=times, only=only))

    def garbage(self, times: int = 1, *, only: str = "", kind: Literal["html", "cut"] = "html") -> None:
        """Answer 200 with a page of HTML, as a proxy does; or execute, and answer with half of the JSON."""
        self._troubles.append(_Trouble(kind=kind, times=times, only=only))

    def lie(self, change: Callable[[bytes], bytes], *, times: int | None = None, only: str = "") -> None:
        """Execute a request, and answer with the body changed by `change`, unless it is an error."""
        self._troubles.append(_Trouble(kind="lie", times=times, only=only, lie=change))

    def hang(self, *, spare: str | None = None) -> None:
        """Accept connections and answer nothing, like a stopped process; see `resume`.

        Requests for `spare` are still answered: a head without GCS answers `/api/version`.
        """
        self._spared = spare
        self._awake.clear()

    def hold_tails(self) -> None:
        """Leave tailed logs open without sending more, as Ray does for seconds after the end of a job."""
        self._tails_held = True

    def resume(self) -> None:
        """Go on, and execute the requests that arrived in the meantime, even if their callers gave up."""
        self._awake.set()

    def heal(self) -> None:
        """End every fault of this kind."""
        self._delay_s = self._drip_s = 0.0
        self._troubles.clear()
        self._tails_held = False
        self.resume()

    def tails_are_held(self) -> bool:
        """Tell whether tailed logs are silent now."""
        return self._tails_held

    async def awake(self) -> None:
        """Return when the process is not stopped."""
        await self._awake.wait()

    async def apply(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle one request under the faults of this moment."""
        await request.read()  # the kernel has received the whole request, whatever happens to the process
        if request.path != self._spared:
            await self.awake()
        await asyncio.sleep(self._delay_s)
        trouble = self._next_trouble(request)
        if trouble is not None and trouble.kind == "status":
            return web.Response(status=trouble.status, text=trouble.words)
        if trouble is not None and trouble.kind == "html":
            return web.Response(text=HTML_PAGE, content_type="text/html")
        response = await handler(request)
        if trouble is not None and trouble.kind == "lose_reply" and request.transport is not None:
            request.transport.close()
        if not isinstance(response, web.Response) or not isinstance(response.body, bytes):
            return response
        if trouble is not None and trouble.kind == "cut":
            return web.Response(
                body=response.body[: len(response.body) // 2], content_type="application/json"
            )
        if trouble is not None and trouble.lie is not None and response.status == 200:
            return web.Response(body=trouble.lie(response.body), content_type="application/json")
        return await self._drip(request, response, response.body) if self._drip_s else response

    def _next_trouble(self, request: web.Request) -> _Trouble | None:
        for trouble in self._troubles:
            asked = f"{request.method} {request.path}" if " " in trouble.only else request.path
            if asked.startswith(trouble.only):
                if trouble.times is not None:
                    trouble.times -= 1
                    if trouble.times == 0:
                        self._troubles.remove(trouble)
                return trouble
        return None

    async def _drip(self, request: web.Request, response: web.Response, body: bytes) -> web.StreamResponse:
        slow = web.StreamResponse(status=response.status, headers={"Content-Type": response.content_type})
        slow.content_length = len(body)
        await slow.prepare(request)
        for position in range(len(body)):
            await slow.write(body[position : position + 1])
            await asyncio.sleep(self._drip_s)
        return slow
