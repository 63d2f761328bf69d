"""Packages as Ray's clients upload them: kept for the caller, and sent to whichever cluster gets the job.

Nothing is unpacked here. Our own client uses the same paths.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import IO, Annotated

from fastapi import Depends
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ray_multicluster_scheduler.asyncio_tools import within
from ray_multicluster_scheduler.packages.pack import MAX_BYTES
from ray_multicluster_scheduler.packages.uploads import check_name
from ray_multicluster_scheduler.server.body_limit import BODY_TIMEOUT_S
from ray_multicluster_scheduler.server.ray_route import ray_router, refusal, refuse_other_methods
from ray_multicluster_scheduler.server.request_caller import allowed
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.uploaded_packages import UploadedPackages

TOO_LARGE = f"Maximum request body size {MAX_BYTES} exceeded."
PROTOCOL = "gcs"
#: Written to the disk in one go, and has the time of a whole body to arrive.
BLOCK_BYTES = 2**20
_PATH = "/api/packages/{protocol}/{name}"

router = ray_router()


class _TooLarge(Exception):
    """The body is larger than Ray takes."""


@router.api_route(_PATH, methods=["GET", "HEAD"])
def has_package(
    protocol: str, name: str, service: Annotated[LocalService, Depends(allowed(Role.READ))]
) -> Response:
    """Tell whether the caller has uploaded a package; if so, it is kept for another while."""
    if protocol != PROTOCOL:
        return _other_protocol(protocol)
    if not service.packages.has(name):
        return refusal(404, f"Package {PROTOCOL}://{name} does not exist")
    return Response()


@router.put(_PATH)
async def put_package(
    protocol: str,
    name: str,
    request: Request,
    service: Annotated[LocalService, Depends(allowed(Role.SUBMIT))],
) -> Response:
    """Keep a package for the caller; the content that this caller had under this name is replaced."""
    if protocol != PROTOCOL:
        return _other_protocol(protocol)
    check_name(name)
    if int(request.headers.get("content-length") or 0) >= MAX_BYTES:
        return refusal(413, TOO_LARGE)
    packages = service.packages
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


def _other_protocol(protocol: str) -> Response:
    return refusal(
        400, f"packages are uploaded as {PROTOCOL}://NAME; {protocol[:40]!r} is none of Ray's places"
    )


refuse_other_methods(router, _PATH)
