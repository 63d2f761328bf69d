"""Packages as Ray's clients upload them: kept for the caller, and sent to whichever cluster gets the job.

Nothing is unpacked here. Our own client uses the same paths.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import IO, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ray_multicluster_scheduler.asyncio_tools import within
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.packages.pack import MAX_BYTES
from ray_multicluster_scheduler.packages.uploads import check_name
from ray_multicluster_scheduler.server.body_limit import BODY_TIMEOUT_S
from ray_multicluster_scheduler.server.ray_route import RayRoutes, refusal
from ray_multicluster_scheduler.server.request_caller import service_of
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.uploaded_packages import UploadedPackages

TOO_LARGE = f"Maximum request body size {MAX_BYTES} exceeded."
PROTOCOL = "gcs"
#: Written to the disk in one go, and has the time of a whole body to arrive.
BLOCK_BYTES = 2**20
_PATH = "/api/packages/{protocol}/{name}"

routes = RayRoutes()


class _TooLarge(Exception):
    """The body is larger than Ray takes."""


@routes.on("GET", _PATH, role=Role.READ)
def has_package(request: Request) -> Response:
    """Tell whether the caller has uploaded a package; if so, it is kept for another while."""
    name = _name_of(request)
    if not service_of(request).packages.has(name):
        return refusal(404, f"Package {PROTOCOL}://{name} does not exist")
    return Response()


@routes.on("PUT", _PATH, role=Role.SUBMIT)
async def put_package(request: Request) -> Response:
    """Keep a package for the caller; the content that this caller had under this name is replaced."""
    check_name(name := _name_of(request))
    if int(request.headers.get("content-length") or 0) >= MAX_BYTES:
        return refusal(413, TOO_LARGE)
    packages = service_of(request).packages
    assert isinstance(packages, UploadedPackages), "a caller of the server is another process"
    with ExitStack() as stack:
        file = await asyncio.to_thread(stack.enter_context, packages.receive())
        try:
            await _receive(request, file)
        except _TooLarge:
            return refusal(413, TOO_LARGE)
        except asyncio.TimeoutError:
            return refusal(408, "the upload took too long")
        except ClientDisconnect:
            return refusal(400, "the upload broke off")
        await asyncio.to_thread(packages.keep, name, file)
    return Response()


async def _receive(request: Request, file: IO[bytes]) -> None:
    """Write the body to a file, block by block; there is never more than a block of it in memory."""
    size, chunks = 0, request.stream()
    while block := await within(BODY_TIMEOUT_S, _next_block(chunks)):
        size += len(block)
        if size >= MAX_BYTES:
            raise _TooLarge
        await asyncio.to_thread(file.write, block)


async def _next_block(chunks: AsyncIterator[bytes]) -> bytes:
    """Return a block, or what is left; it is empty at the end."""
    block = bytearray()
    async for chunk in chunks:
        block += chunk
        if len(block) >= BLOCK_BYTES:
            break
    return bytes(block)


def _name_of(request: Request) -> str:
    """Return the name of the package that a path names; InvalidRequest if it is for none of Ray's places."""
    protocol: str = request.path_params["protocol"]
    if protocol != PROTOCOL:
        raise InvalidRequest(
            f"packages are uploaded as {PROTOCOL}://NAME; {protocol[:40]!r} is none of Ray's places"
        )
    return cast(str, request.path_params["name"])
