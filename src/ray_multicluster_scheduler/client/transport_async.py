"""Streams of our own server for asyncio, where no thread waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.client.http_responses import Answer, broke_off, checked, late, unreachable
from ray_multicluster_scheduler.client.server_sent_events import Event, EventReader
from ray_multicluster_scheduler.client.transport import CONNECT_TIMEOUT_S, SILENCE_S, Call, Transport
from ray_multicluster_scheduler.errors import SchedulerError

if TYPE_CHECKING:
    import aiohttp


async def events(transport: Transport, call: Call) -> AsyncGenerator[Event, None]:
    """Send a request and yield the events of its answer as they come."""
    import aiohttp  # noqa: PLC0415 - only asyncio programs that wait or follow need it

    server = transport.server
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_S)
    try:
        connector = aiohttp.TCPConnector(ssl=transport.tls() if server.url.startswith("https") else False)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.request(
                call.method,
                server.url + call.target,
                data=call.body,
                headers=transport.headers(call),
                allow_redirects=False,
            ) as response,
        ):
            transport.answered = True
            if response.status != 200:
                content = await response.read()
                checked(server, call.path, Answer.of(response.status, response.headers, content))
            async for event in _events(response):
                yield event
    except SchedulerError:  # some of them are kinds of OSError
        raise
    except aiohttp.ClientConnectorCertificateError as error:
        raise unreachable(server, error.certificate_error) from error
    except aiohttp.ClientConnectorError as error:
        raise unreachable(server, error.os_error) from error
    except (aiohttp.ServerTimeoutError, asyncio.TimeoutError) as error:
        raise late(server) from error
    except (aiohttp.ClientError, OSError) as error:
        raise broke_off(server, error, answered=transport.answered) from error


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[Event, None]:
    reader, rest = EventReader(), b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if event := reader.feed(line):
                yield event
