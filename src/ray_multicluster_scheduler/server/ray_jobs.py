"""Ray's Jobs interface over all clusters: what `ray job` and `JobSubmissionClient` speak.

Reads come from the store. What no client depends on is better said than by Ray: no paths, no tracebacks.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import string
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, aclosing
from functools import partial
from typing import IO, Annotated, Any, cast

from fastapi import Depends
from fastapi.routing import APIWebSocketRoute
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from ray_multicluster_scheduler.asyncio_tools import within
from ray_multicluster_scheduler.environment.redact import REDACTED
from ray_multicluster_scheduler.errors import DuplicateSubmission, InvalidRequest, JobNotFound, SchedulerError
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.packages.pack import MAX_BYTES
from ray_multicluster_scheduler.packages.uploads import check_name
from ray_multicluster_scheduler.server.authentication import allowed, caller_of, in_cluster_thread, service_of
from ray_multicluster_scheduler.server.protocol import BODY_TIMEOUT_S
from ray_multicluster_scheduler.server.ray_route import RayJSON, RayRoutes, is_browser, refusal, refusal_of
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.packages import UploadedPackages
from ray_multicluster_scheduler.service.query import JobQuery, all_jobs
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.service.service import LocalService
from ray_multicluster_scheduler.service.views import Explanation, JobView

# Why a queued job waits, cached for clients that ask every second.


#: How long a reason is reused: computing one reads the whole queue.
GOOD_FOR_S = 5.0
#: How long a request waits for another one's computation before it answers with the last known reason.
PATIENCE_S = 1.0
MOST_KEPT = 1000


class WaitReasonCache:
    """The last reasons, by job."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._reasons: dict[tuple[str, float], tuple[float, str]] = {}

    def reason(self, service: LocalService, job: JobView) -> str:
        """Return in one or two sentences why a queued job waits, and where it stands."""
        key = (job.submission_id, job.changed_at)
        reason = self._fresh(key)
        # One computation at a time, however many clients ask, and no client waits for long.
        if reason is None and self._lock.acquire(timeout=PATIENCE_S):
            try:
                reason = self._fresh(key) or self._look(service, job)
                if len(self._reasons) >= MOST_KEPT:
                    self._reasons.clear()
                self._reasons[key] = self._now() + GOOD_FOR_S, reason
            finally:
                self._lock.release()
        return reason or job.message

    def _fresh(self, key: tuple[str, float]) -> str | None:
        until, reason = self._reasons.get(key, (0.0, None))
        return reason if until > self._now() else None

    def _look(self, service: LocalService, job: JobView) -> str:
        try:
            return _in_words(service.explain(job.submission_id))
        except SchedulerError:  # the job has just left the queue
            return job.message


def _in_words(explanation: Explanation) -> str:
    place = f"Number {explanation.position} in the queue: " if explanation.position is not None else ""
    return f"{place}{explanation.why}."


# The body of a submission by Ray's rules, and the request that it becomes.


#: What Ray's clients send, with what each value must be and how Ray calls that.
FIELDS: dict[str, tuple[tuple[type, ...], str]] = {
    "entrypoint": ((str,), "a string"),
    "submission_id": ((str,), "a string if provided"),
    "job_id": ((str,), "a string if provided"),
    "runtime_env": ((dict,), "a dict"),
    "metadata": ((dict,), "a dict"),
    "entrypoint_num_cpus": ((int, float), "a number"),
    "entrypoint_num_gpus": ((int, float), "a number"),
    "entrypoint_memory": ((int,), "an integer"),
    "entrypoint_resources": ((dict,), "a dict"),
    "entrypoint_label_selector": ((dict,), "a dict"),
}
_REQUEST = "TypeError: JobSubmitRequest.__init__()"
#: Without I, l, o, O and 0, which look like others.
_ID_LETTERS = "".join(sorted(set(string.ascii_letters + string.digits) - set("IloO0")))
_ID_LENGTH = 16


def new_submission_id() -> str:
    """Return an id as Ray makes them."""
    # One call for all letters: each one lets other threads run, and under load they do.
    number, letters = secrets.randbelow(len(_ID_LETTERS) ** _ID_LENGTH), ""
    for _ in range(_ID_LENGTH):
        number, letter = divmod(number, len(_ID_LETTERS))
        letters += _ID_LETTERS[letter]
    return f"raysubmit_{letters}"


def request_of(body: bytes, *, user: str) -> JobRequest:
    """Read a submission; what is wrong with its form is said as Ray says it."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):  # a UnicodeDecodeError is a ValueError
        raise InvalidRequest("the body must be a JSON object; this is no valid JSON") from None
    if not isinstance(data, dict):
        raise InvalidRequest(f"the body must be a JSON object, not {type(data).__name__}")
    given = {name: value for name, value in data.items() if value is not None}
    _check(given)
    old_id = given.pop("job_id", None)
    given["submission_id"] = given.get("submission_id") or old_id or new_submission_id()
    return JobRequest(**given, user=user)


def _check(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if name not in FIELDS:
            raise InvalidRequest(f"{_REQUEST} got an unexpected keyword argument {name!r}")
        kinds, called = FIELDS[name]
        if not isinstance(value, kinds):
            raise InvalidRequest(f"TypeError: {name} must be {called}, got {type(value)}")
    if "entrypoint" not in given:
        raise InvalidRequest(f"{_REQUEST} missing 1 required positional argument: 'entrypoint'")
    for value in given.get("metadata", {}).values():
        if not isinstance(value, str):
            raise InvalidRequest(f"TypeError: metadata values must be strings, got {type(value)}")


# A job as Ray's clients read it: `JobDetails`, with all its keys in Ray's order.


#: Sentences of Ray that clients look for.
NOT_STARTED = "Job has not started yet."
FOR_RESOURCES = " It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become available."
FOR_ENVIRONMENT = " It may be waiting for the runtime environment to be set up."
RUNNING = "Job is currently running."
_ENVIRONMENT_FAILED = "RUNTIME_ENV_SETUP_FAILURE"
_PROGRAM_FAILED = "JOB_ENTRYPOINT_COMMAND_ERROR"
#: How much of a failed job's log its message ends with.
LAST_LINES = 10
LAST_CHARS = 20_000


def job_details(
    job: JobView, *, why: str | None = None, log: str | None = None, browser: bool = False
) -> dict[str, Any]:
    """Return what Ray would, with `why` a queued job waits and the `log` of one that failed, where known.

    Where a cluster is reached, and on which of its nodes a driver runs, is none of a user's business.
    """
    return {
        "type": "SUBMISSION",
        "job_id": None,
        "submission_id": job.submission_id,
        "driver_info": None,
        "status": job.status,
        "entrypoint": job.entrypoint,
        "message": _message(job, why, log),
        "error_type": job.error_type if job.state is JobState.FAILED else None,
        "start_time": _milliseconds(job.accepted_at),
        "end_time": _milliseconds(job.ended_at),
        "metadata": dict(job.metadata),
        "runtime_env": _for_browser(job.runtime_env) if browser else job.runtime_env,
        "driver_agent_http_address": None,
        "driver_node_id": None,
        "driver_exit_code": None if job.state is JobState.STOPPED else job.exit_code,
    }


def _message(job: JobView, why: str | None, log: str | None) -> str:
    if job.state is JobState.SUCCEEDED:
        return "Job finished successfully."
    if job.state is JobState.STOPPED:
        return "Job was intentionally stopped."
    if job.state is JobState.FAILED:
        return _failure(job, log)
    if job.state is JobState.RUNNING:
        return RUNNING
    if job.state is JobState.UNREACHABLE:
        return f"{RUNNING} {job.message}"
    waits = _wants_resources(job)
    return (
        NOT_STARTED
        + (FOR_RESOURCES if waits else "")
        + (FOR_ENVIRONMENT if job.runtime_env else "")
        + f" {why or job.message}"
    )


def _wants_resources(job: JobView) -> bool:
    drivers = (job.entrypoint_num_cpus, job.entrypoint_num_gpus, job.entrypoint_memory)
    return job.state is JobState.QUEUED or any(drivers) or bool(job.entrypoint_resources)


def _failure(job: JobView, log: str | None) -> str:
    if job.error_type == _ENVIRONMENT_FAILED:
        return f"runtime_env setup failed: {job.message}"
    if job.error_type != _PROGRAM_FAILED or job.exit_code is None:
        return job.message
    said = f"Job entrypoint command failed with exit code {job.exit_code}"
    if log is None:
        return f"{said}. {job.message}"
    last = "".join(log.splitlines(keepends=True)[-LAST_LINES:])[-LAST_CHARS:]
    if not last:
        return f"{said}. No logs available."
    return f"{said}, last available logs (truncated to {LAST_CHARS:,} chars):\n{last}"


def _for_browser(runtime_env: dict[str, Any]) -> dict[str, Any]:
    """Hide all values of variables, as Ray does: another page may have sent the browser here."""
    env_vars = runtime_env.get("env_vars")
    if not isinstance(env_vars, dict):
        return runtime_env
    return {**runtime_env, "env_vars": dict.fromkeys(env_vars, REDACTED)}


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


#: Ray's list has no pages: this is how many jobs of the caller it shows, the newest.
MOST_LISTED = 10_000

_JOB = "/api/jobs/{submission_id}"

routes = RayRoutes()
_wait_reasons = WaitReasonCache()


@routes.on("POST", "/api/jobs/", "/api/jobs", role=Role.SUBMIT)
async def submit(request: Request) -> Response:
    """Accept a job; it is on disk when this answers."""
    return await run_in_threadpool(_submitted, request, await request.body())


def _submitted(request: Request, body: bytes) -> Response:
    asked = request_of(body, user=caller_of(request).user)
    try:
        (job,) = service_of(request).submit([asked])
    except DuplicateSubmission:
        # With this status: clients repeat a submission, and take these words for "it has arrived before".
        return refusal(
            500,
            f"ValueError: Job with submission_id {asked.submission_id} already exists. "
            "Please use a different submission_id.",
        )
    return RayJSON({"job_id": job.submission_id, "submission_id": job.submission_id})


@routes.on("GET", "/api/jobs/", "/api/jobs", role=Role.READ)
def list_jobs(request: Request) -> Response:
    """Return the caller's jobs, newest first."""
    browser = is_browser(request)
    found = all_jobs(service_of(request), JobQuery(), limit=MOST_LISTED)
    return RayJSON([job_details(job, browser=browser) for job in found])


@routes.on("GET", _JOB, role=Role.READ)
def get_job(request: Request) -> Response:
    """Return one job; of one that waits, why and where it stands."""
    service = service_of(request)
    job = found(request, service)
    told: dict[str, Any] = {}
    if job.state is JobState.QUEUED:
        told["why"] = _wait_reasons.reason(service, job)
    elif job.state is JobState.FAILED:
        told["log"] = service.kept_log(job.submission_id) or ""
    return RayJSON(job_details(job, browser=is_browser(request), **told))


@routes.on("DELETE", _JOB, role=Role.SUBMIT)
async def delete_job(request: Request) -> Response:
    """Forget a job that has ended; its id is free again."""
    return await in_cluster_thread(request, partial(_deleted, request))


def _deleted(request: Request) -> Response:
    service = service_of(request)
    job = found(request, service)
    if not job.final:
        return refusal(
            500,
            f"RuntimeError: Attempted to delete job '{job.submission_id}', but it is in a non-terminal state "
            f"{job.status}.",
        )
    service.delete([job.submission_id])
    return RayJSON({"deleted": True})


@routes.on("POST", f"{_JOB}/stop", role=Role.SUBMIT)
def stop_job(request: Request) -> Response:
    """Ask for a job to be stopped, wherever it is; false: it had ended."""
    service = service_of(request)
    job = found(request, service)
    if not job.final:
        service.stop([job.submission_id])
    return RayJSON({"stopped": not job.final})


def found(connection: HTTPConnection, service: LocalService) -> JobView:
    """Return the job that a path names; an id that cannot be one is as unknown as somebody else's."""
    submission_id = connection.path_params["submission_id"]
    try:
        known: Mapping[str, JobView] = service.get_many([submission_id])
    except InvalidRequest:
        known = {}
    if submission_id not in known:
        raise JobNotFound(submission_id)
    return known[submission_id]


# Logs as Ray's clients read them: all at once, and over a websocket as they grow.


#: Ray's frames have at most about this many characters.
FRAME_CHARS = 20_000
NORMAL, TROUBLE = 1000, 1011
_LOGS, _TAIL = "/api/jobs/{submission_id}/logs", "/api/jobs/{submission_id}/logs/tail"


@routes.on("GET", _LOGS, role=Role.READ)
async def logs(request: Request) -> Response:
    """Return the log so far, over all attempts; empty while there is none."""
    service = service_of(request)
    job = await run_in_threadpool(found, request, service)
    return RayJSON({"logs": await service.whole_log(job.submission_id)})


@routes.on("GET", _TAIL, role=Role.READ)
def tail_without_upgrade(request: Request) -> Response:
    """Say that this path wants a websocket."""
    found(request, service_of(request))
    return refusal(400, "WebSocket proxy error: this path is a websocket; ask for an upgrade")


async def tail(websocket: WebSocket, service: Annotated[LocalService, Depends(allowed(Role.READ))]) -> None:
    """Send the log as it grows, over all attempts, and close when the job's end can be read."""
    try:
        job = await run_in_threadpool(found, websocket, service)
    except JobNotFound as error:
        await websocket.send_denial_response(refusal_of(error))
        return
    await websocket.accept()
    sending = asyncio.create_task(_send(websocket, service.tail_async(job.submission_id)))
    leaving = asyncio.create_task(_left(websocket))
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
    if sending.done() and not sending.cancelled():
        await websocket.close(sending.result())


async def _send(websocket: WebSocket, pieces: AsyncIterator[str]) -> int:
    """Send pieces as frames; return the code to close with."""
    try:
        async with aclosing(pieces):  # type: ignore[type-var]
            async for piece in pieces:
                for start in range(0, len(piece), FRAME_CHARS):
                    await websocket.send_text(piece[start : start + FRAME_CHARS])
    except JobNotFound:
        return NORMAL  # it was deleted: there will be no more
    except WebSocketDisconnect:
        return NORMAL  # the client has gone while it was sent something
    except SchedulerError:
        return TROUBLE
    return NORMAL


async def _left(websocket: WebSocket) -> None:
    """Return when the client has gone; what it says is not looked at."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


routes.append(APIWebSocketRoute(_TAIL, tail))


# Packages as Ray's clients upload them: kept for the caller, and sent to whichever cluster gets the job.
#
# Nothing is unpacked here. Our own client uses the same paths.


TOO_LARGE = f"Maximum request body size {MAX_BYTES} exceeded."
PROTOCOL = "gcs"
#: Written to the disk in one go, and has the time of a whole body to arrive.
BLOCK_BYTES = 2**20
_PATH = "/api/packages/{protocol}/{name}"


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
