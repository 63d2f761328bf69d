"""Bodies of answers, of which nobody knows the length beforehand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import aiohttp

from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer

PIECE_BYTES = 2**16
#: Behind this much of one answer, what is done with each piece is followed by a rest of that many times its
#: length, so that most of the time is left to other clusters.
FREE_BYTES = 2**20
REST = 3.0
#: Of an error, only the beginning can matter (a traceback of Ray has 1 to 3 kB).
MAX_ERROR_BYTES = 64 * 2**10


async def pieces(response: aiohttp.ClientResponse, most: int) -> AsyncIterator[bytes]:
    """Yield a body piece by piece, and nothing (`b""`) at its end. Rest between those of a long one."""
    passed = 0
    while piece := await response.content.read(PIECE_BYTES):
        passed += len(piece)
        if passed > most:
            raise MalformedAnswer(f"it is longer than {most} bytes")
        began = time.thread_time()
        yield piece
        if passed > FREE_BYTES:
            await asyncio.sleep(REST * (time.thread_time() - began))
    yield b""


async def beginning(response: aiohttp.ClientResponse) -> bytes:
    """Read the beginning of an error."""
    body = bytearray()
    async for piece in response.content.iter_chunked(MAX_ERROR_BYTES):
        body += piece
        if len(body) >= MAX_ERROR_BYTES:
            break
    return bytes(body[:MAX_ERROR_BYTES])
