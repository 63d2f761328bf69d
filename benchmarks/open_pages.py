"""Open pages of the dashboard without a browser: each asks for its page and listens, as a browser does."""

from __future__ import annotations

import ast
import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import aiohttp
import socketio

SOCKET = "_nicegui_ws/socket.io"
#: A browser confirms what it has got so often.
ACK_S = 3.0
_QUERY = re.compile(r"^\s*query: (\{.*\}),$", re.M)


class OpenPage:
    """One page that is open."""

    def __init__(self, http: aiohttp.ClientSession, address: str) -> None:
        self._http = http
        self._address = address
        self._socket = socketio.AsyncClient(reconnection=False, http_session=http)
        self._socket.on("*", self._got)
        self._next = 0
        #: Messages that have come.
        self.messages = 0

    @asynccontextmanager
    async def open(self, path: str) -> AsyncIterator[OpenPage]:
        """Ask for the page and listen to it until the block ends."""
        async with self._http.get(self._address + path) as answer:
            answer.raise_for_status()
            found = _QUERY.search(await answer.text())
        if found is None:
            raise LookupError("NiceGUI's page has another form than it had: its query was not found")
        query = {
            **ast.literal_eval(found[1]),
            "tab_id": uuid.uuid4(),
            "document_id": uuid.uuid4(),
            "old_tab_id": "",
            "implicit_handshake": "true",  # as a browser writes it
        }
        self._next = int(query["next_message_id"])
        await self._socket.connect(
            f"{self._address}?{urlencode(query)}", transports=["websocket"], socketio_path=SOCKET
        )
        confirming = asyncio.create_task(self._confirm(query["client_id"]))
        try:
            yield self
        finally:
            confirming.cancel()
            await self._socket.disconnect()

    async def _got(self, _: str, message: Any) -> None:
        self.messages += 1
        if isinstance(message, dict) and "_id" in message:
            self._next = message["_id"] + 1

    async def _confirm(self, client_id: str) -> None:
        while True:
            await asyncio.sleep(ACK_S)
            await self._socket.emit("ack", {"client_id": client_id, "next_message_id": self._next})


@asynccontextmanager
async def open_pages(address: str, paths: Sequence[str]) -> AsyncIterator[list[OpenPage]]:
    """Open these pages, one after another."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        yield [await stack.enter_async_context(OpenPage(http, address).open(path)) for path in paths]
