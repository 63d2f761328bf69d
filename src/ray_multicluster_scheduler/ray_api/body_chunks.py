"""Reads response bodies of unknown length in chunks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import aiohttp

from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer

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
