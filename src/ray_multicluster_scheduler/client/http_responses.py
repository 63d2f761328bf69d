"""What the answers of a server mean, and in what words its problems are told."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import ValidationError

from ray_multicluster_scheduler.client.server_address import CA_VAR, ServerAddress
from ray_multicluster_scheduler.environment.env_vars import TOKEN_FILE_VAR, TOKEN_VAR
from ray_multicluster_scheduler.errors import (
    NotAuthenticated,
    SchedulerError,
    ServerBadAnswer,
    ServerLost,
    ServerTimeout,
    ServerUnreachable,
)
from ray_multicluster_scheduler.service.error_json import error_from
from ray_multicluster_scheduler.version import VERSION

T = TypeVar("T")
_GATEWAY = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server has answered, all of it."""

    status: int
    content_type: str
    content: bytes
    #: When a server that has refused to do something now may be asked again.
    retry_after_s: float

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str], content: bytes) -> Answer:
        """Return an answer from what HTTP brings."""
        given = {name.lower(): value for name, value in headers.items()}
        wait = given.get("retry-after", "")
        return cls(
            status=status,
            content_type=given.get("content-type", ""),
            content=content,
            retry_after_s=float(wait) if wait.isdecimal() else 1.0,
        )


def checked(server: ServerAddress, path: str, answer: Answer) -> Any:
    """Return the JSON of an answer; raises what it tells of."""
    good = answer.status < HTTPStatus.MULTIPLE_CHOICES
    try:
        body = json.loads(answer.content) if answer.content else None
    except ValueError:
        if good:
            kind = answer.content_type or "something"
            raise mistaken(server, f"it answers {path} with {kind}, not with JSON") from None
        body = None
    if not good:
        raise refused(server, path, answer.status, body)
    return body


def refused(server: ServerAddress, path: str, status: int, body: object) -> SchedulerError:
    """Return the error that an answer with an error status stands for."""
    error = error_from(body)
    if isinstance(error, NotAuthenticated):
        return NotAuthenticated(f"{str(error).rstrip('.')}. {_about_token(server)}")
    if error is None and status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:  # the paths of Ray
        return NotAuthenticated(f"the server at {server.url} wants another token. {_about_token(server)}")
    if error is not None and (
        type(error) is not SchedulerError or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    ):
        return error
    if error is not None and status not in {404, 405}:
        return ServerBadAnswer(server.url, f"{error} (status {status})")
    if status in _GATEWAY:
        return ServerLost(server.url, f"a proxy in front of it cannot reach it (status {status})")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServerBadAnswer(server.url, f"it failed at {path} (status {status}); its log says why")
    return mistaken(server, f"it answers {path} with status {status}")


def parsed(server: ServerAddress, parse: Callable[[Any], T], answer: Any) -> T:
    """Return an answer as the record that it is; one that lacks something comes from another version."""
    try:
        return parse(answer)
    except (ValidationError, KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        else:
            what = f"{type(error).__name__}: {error}"
        raise ServerBadAnswer(
            server.url,
            f"its answer is not what this client ({VERSION}) expects ({what}); "
            "install the same version on both sides",
        ) from None


def unreachable(server: ServerAddress, error: Exception) -> ServerUnreachable:
    """Say why no connection could be made, and what to look at."""
    return ServerUnreachable(server.url, f"{_why(error)} (the address is from {server.named_by})")


def late(server: ServerAddress) -> ServerTimeout:
    """Say that no answer came in time."""
    return ServerTimeout(server.url, "no answer in time; it may be busy, and may still do what was asked")


def broke_off(server: ServerAddress, error: Exception, *, answered: bool) -> ServerLost:
    """Say that the connection broke; `answered`: it has answered before, so it is the right address."""
    why = str(error) or type(error).__name__
    hint = "" if answered or server.url.startswith("https") else ". If it has a certificate, write https://"
    return ServerLost(
        server.url, f"the connection broke off ({why}); what was asked may or may not have been done{hint}"
    )


def mistaken(server: ServerAddress, what: str) -> ServerBadAnswer:
    """Say that something else answers there."""
    return ServerBadAnswer(
        server.url,
        f"{what}. Is this the address of a `raymc serve` ({VERSION}), and not of a Ray dashboard? "
        f"It is from {server.named_by}",
    )


def _about_token(server: ServerAddress) -> str:
    if server.token is None:
        return (
            f"No token was found in {server.token_place}. Set {TOKEN_VAR}, or {TOKEN_FILE_VAR} to the file "
            "that holds it, or say `raymc login`; `raymc token create` on the server's machine makes one"
        )
    return f"The token that was sent is from {server.token_place}"


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); {CA_VAR} names the file of a CA "
            "that is to be trusted"
        )
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection ({error.reason or error}); does it speak http:// only?"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there; is `raymc serve` running?"
    if isinstance(error, socket.gaierror):
        return f"the host is not known ({error.strerror})"
    if isinstance(error, TimeoutError):
        return "no connection in time; is the host right, and does a firewall let it through?"
    return f"no connection ({error})"
