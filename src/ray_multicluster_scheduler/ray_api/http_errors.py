"""Translates every error of an HTTP call into our error tree.

Messages name the cluster, the address and the next step. They never contain a token, a value of `env_vars`
or a traceback of Ray.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import urlsplit

import aiohttp

from ray_multicluster_scheduler.errors import (
    ClusterAuthFailed,
    ClusterBadAnswer,
    ClusterError,
    ClusterRefused,
    ClusterTimeout,
    ClusterUnreachable,
    RemoteJobExists,
    RemoteJobNotFound,
)
from ray_multicluster_scheduler.model.cluster import ClusterSpec

#: In characters: enough for an error sentence of Ray, too little to fill a screen.
MAX_MESSAGE_CHARS = 300
#: Shorter values are not hidden: hiding every "1" would make the text unreadable.
SHORTEST_SECRET = 4
#: Ray's message for a submission id that is taken; other clients match it too.
ID_IS_TAKEN = "already exists. Please use a different submission_id"


class MalformedAnswer(ValueError):
    """An answer does not have the format of Ray."""


def place(spec: ClusterSpec) -> str:
    """Return the address of the dashboard, without a user name or password in the URL."""
    parts = urlsplit(spec.dashboard)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else spec.dashboard


@contextmanager
def translated(spec: ClusterSpec) -> Iterator[None]:
    """Turn the errors of sockets, HTTP and JSON into `ClusterError`s of this cluster."""
    try:
        yield
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError, RecursionError) as error:
        raise _translate(spec, error) from error


def _translate(spec: ClusterSpec, error: BaseException) -> ClusterError:
    where = place(spec)
    match error:
        case aiohttp.InvalidURL():
            return ClusterUnreachable(
                spec.name, f"{where} is not a usable address; check `dashboard` in clusters.yaml"
            )
        case aiohttp.ClientSSLError() if "WRONG_VERSION_NUMBER" in str(error):
            return ClusterUnreachable(
                spec.name, f"{where} does not speak TLS; write http:// instead of https:// in `dashboard`"
            )
        case aiohttp.ClientSSLError():
            return ClusterUnreachable(
                spec.name,
                f"no TLS connection to {where}: {error.os_error}; "
                "is it https there, and does `tls_ca` name the file that signed its certificate?",
            )
        case aiohttp.ClientConnectorError():
            return _not_connected(spec, error.os_error)
        case aiohttp.ConnectionTimeoutError():
            return ClusterUnreachable(
                spec.name, f"no connection to {where} in time; check the address, the network and firewalls"
            )
        case asyncio.TimeoutError():
            return ClusterTimeout(spec.name, f"no complete answer from {where} within the deadline")
        case aiohttp.WSServerHandshakeError():
            return refusal(spec, error.status, "")
        case aiohttp.ClientResponseError():
            return ClusterBadAnswer(
                spec.name,
                f"{where} does not speak HTTP; it looks like the port of Ray Client or of the GCS: "
                "`dashboard` is the address of Ray's dashboard, whose port is 8265 by default",
            )
        case aiohttp.ClientError() | OSError():
            return ClusterBadAnswer(
                spec.name,
                f"the connection to {where} ended in the middle of an answer ({type(error).__name__})",
            )
        case _:
            why = f": {error}" if isinstance(error, MalformedAnswer) else ""
            return ClusterBadAnswer(
                spec.name, f"the answer from {where} is not what Ray sends{why}; check `dashboard`"
            )


def _not_connected(spec: ClusterSpec, error: OSError) -> ClusterUnreachable:
    if isinstance(error, ConnectionRefusedError):
        return ClusterUnreachable(
            spec.name,
            f"connection refused at {place(spec)}; is the Ray head running, and its dashboard on this port?",
            refused=True,
        )
    return ClusterUnreachable(
        spec.name, f"no connection to {place(spec)}: {error.strerror or error}; check `dashboard`"
    )


def refusal(spec: ClusterSpec, status: int, body: str, *, hidden: Collection[str] = ()) -> ClusterError:
    """Return the exception for an answer with an error status; `hidden` values never appear in it."""
    words = ray_words(body, hidden=hidden)
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return ClusterAuthFailed(spec.name, _about_the_token(spec, status))
    if 300 <= status < 400:
        return ClusterBadAnswer(
            spec.name, f"{place(spec)} redirects to another address, which is not followed; check `dashboard`"
        )
    message = f"{place(spec)} answered {status}: {words or 'without a reason'}"
    # A proxy may answer 404 as well: only Ray's own message proves that a job is unknown.
    if status == HTTPStatus.NOT_FOUND and words.startswith("Job ") and words.endswith("does not exist"):
        return RemoteJobNotFound(spec.name, message, status=status, body=words)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR and ID_IS_TAKEN in body:
        return RemoteJobExists(spec.name, message, status=status, body=words)
    return ClusterRefused(spec.name, message, status=status, body=words)


def _about_the_token(spec: ClusterSpec, status: int) -> str:
    if spec.auth_token_env is None:
        return (
            "it wants a token; put the token into an environment variable "
            "and name that variable with `auth_token_env` in clusters.yaml"
        )
    if status == HTTPStatus.UNAUTHORIZED:
        return f"it wants a token, and the environment variable {spec.auth_token_env} is not set or empty"
    return f"it does not accept the token in the environment variable {spec.auth_token_env}"


def ray_words(body: str, *, hidden: Collection[str] = ()) -> str:
    """Return the relevant part of an error body: the last line of a traceback, or a `msg`."""
    text = _message_of(body) or body
    if text.lstrip()[:20].lower().startswith(("<!doctype", "<html")):
        return "a web page that is not Ray's"
    lines = [line.strip() for line in text.splitlines() if line.strip(" .\t")]
    words = (lines[-1] if "Traceback" in text else " ".join(lines)) if lines else ""
    for secret in hidden:
        if len(secret) >= SHORTEST_SECRET:
            words = words.replace(secret, "***")
    return words if len(words) <= MAX_MESSAGE_CHARS else words[: MAX_MESSAGE_CHARS - 1] + "…"


def _message_of(body: str) -> str | None:
    """Return `msg` of the state API's JSON errors."""
    if not body.startswith("{"):
        return None
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    message = answer.get("msg")
    return message if isinstance(message, str) else None
