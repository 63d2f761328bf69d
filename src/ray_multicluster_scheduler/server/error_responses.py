"""One shape for every error, and one table from our error tree to HTTP status codes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from ray_multicluster_scheduler import errors
from ray_multicluster_scheduler.errors import error_json

log = logging.getLogger(__name__)

#: Every error of ours has its own line here; a test holds the table to the tree.
STATUS: Mapping[type[errors.SchedulerError], int] = {
    errors.SchedulerError: 500,
    errors.ConfigError: 409,
    errors.ConfigNotFound: 409,
    errors.ConfigInvalid: 409,  # what the caller sent is right: a file of the server is wrong
    errors.InvalidRequest: 422,
    errors.InvalidRuntimeEnv: 422,
    errors.InvalidEntrypoint: 422,
    errors.InvalidResources: 422,
    errors.NeverFits: 422,
    errors.DependencyProblem: 422,
    errors.PackageProblem: 422,
    errors.DuplicateSubmission: 409,
    errors.QuotaExceeded: 429,
    errors.TooManyRequests: 429,
    errors.NotAuthenticated: 401,
    errors.Forbidden: 403,
    errors.JobNotFound: 404,
    errors.JobsFailed: 409,
    errors.ItemFailed: 500,
    errors.WaitTimeout: 408,
    errors.NoClusterAvailable: 503,
    errors.NoQueueHere: 409,
    errors.SchedulerNotStarted: 503,
    errors.HomeLost: 503,
    errors.ClusterError: 502,
    errors.ClusterUnreachable: 502,
    errors.ClusterTimeout: 504,
    errors.ClusterAuthFailed: 502,
    errors.ClusterBadAnswer: 502,
    errors.OutcomeUnknown: 502,
    errors.ClusterRefused: 502,
    errors.RemoteJobExists: 502,
    errors.RemoteJobNotFound: 502,
    errors.ServerError: 502,
    errors.ServerUnreachable: 502,
    errors.ServerLost: 502,
    errors.ServerTimeout: 504,
    errors.ServerBadAnswer: 502,
    errors.PipelineFailed: 500,
    errors.StoreError: 500,
    errors.StoreBusy: 503,
    errors.StoreOutcomeUnknown: 503,
    errors.StaleTransition: 409,
    errors.LeaseLost: 503,
    errors.ForeignStore: 500,
    errors.SandboxError: 500,
}
#: A client that gets one of these may try again later.
RETRY_AFTER_S = {429: "5", 503: "1"}


#: For browsers, which ask for HTML; programs get JSON.
_NOT_FOUND = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Not found</title>
<meta name="viewport" content="width=device-width"><style>body { font: 16px/1.5 system-ui, sans-serif;
max-width: 30rem; margin: 12vh auto; padding: 0 1rem; color-scheme: light dark; }</style>
<h1>Not found</h1><p>This server has no such page. / 没有这个页面。</p>
<p><a href="/">Start page / 首页</a> · <a href="/docs">REST API</a></p></html>
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"


def status_of(error: errors.SchedulerError) -> int:
    """Return the status of an error: that of its own class, or of the nearest one above it."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


class Failure(BaseModel):
    """What went wrong: the name of the error, a sentence for people, data for programs."""

    type: str
    message: str
    details: dict[str, Any]


class ErrorAnswer(BaseModel):
    """The answer to a request that failed."""

    error: Failure


def error_body(kind: str, message: str, **details: Any) -> dict[str, Any]:
    """Return the shape of `service.error_json` for what is no error of ours."""
    return {"error": {"type": kind, "message": message, "details": details}}


def refusal(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the answer that carries an error."""
    retry = {"Retry-After": RETRY_AFTER_S[status]} if status in RETRY_AFTER_S else {}
    return JSONResponse(body, status, headers={**retry, **(headers or {})})


def install(app: FastAPI) -> None:
    """Let an app answer with this shape whatever goes wrong."""
    app.add_exception_handler(errors.SchedulerError, _ours)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _by_status)
    app.add_exception_handler(Exception, _a_bug)


async def _ours(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.SchedulerError)
    status = status_of(error)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("a request failed", extra={"error": type(error).__name__, "why": str(error)})
    headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return refusal(status, error_json(error), headers)


async def _malformed(_: Request, error: Exception) -> JSONResponse:
    """Say which field is wrong and why. The values stay out: they may be secrets."""
    assert isinstance(error, RequestValidationError)
    problems = [
        {"where": ".".join(map(str, problem["loc"])), "problem": str(problem["msg"])}
        for problem in error.errors()
    ]
    sentence = "; ".join(f"{each['where']}: {each['problem']}" for each in problems)
    return refusal(422, error_body("InvalidRequest", sentence, problems=problems))


async def _by_status(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND and "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(_NOT_FOUND, HTTPStatus.NOT_FOUND, headers={"Content-Security-Policy": _POLICY})
    kind = HTTPStatus(error.status_code).phrase.title().replace(" ", "").replace("-", "")
    return refusal(error.status_code, error_body(kind, str(error.detail)), error.headers)


async def _a_bug(request: Request, _: Exception) -> JSONResponse:
    """Tell nothing of the inside. The log has the traceback, under the same id."""
    request_id = getattr(request.state, "request_id", "")
    return refusal(
        500,
        error_body(
            "InternalError",
            f"this server has a bug; its log tells of it under the request id {request_id}",
            request_id=request_id,
        ),
    )
