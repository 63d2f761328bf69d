"""A Ray Client session: what the server that it is connected through knows about it, beside its job."""

from __future__ import annotations

from dataclasses import dataclass

#: The id of a session's job is made of the id that Ray Client has chosen, so that any server finds it.
SESSION_PREFIX = "session-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session. Its user, cluster and state are those of its job."""

    submission_id: str
    #: When a server last said that the program is there; only needed until it is connected.
    alive_at: float
    #: Ray's id of the helper process as a driver; None: not connected yet.
    ray_job_id: str | None = None
    helper_pid: int | None = None
    helper_address: str | None = None
    #: Why it broke off; None: it has not.
    failure: str | None = None
    #: The attempt whose cluster could not begin it, as `failure` says; another cluster may.
    refused_attempt: int | None = None
    #: Its program has taken leave.
    disconnected: bool = False
    #: The leader has asked for its end.
    stop_requested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClient:
    """The program that a session belongs to: its address, and its versions if it tells them."""

    address: str
    ray: str | None = None
    python: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDriver:
    """The driver of a program on a cluster, by Ray's id of it."""

    is_alive: bool
    pid: int | None
    address: str | None
    metadata: dict[str, str]


def session_id(client_id: str) -> str:
    """Return the submission id of the session of a Ray Client."""
    return f"{SESSION_PREFIX}{client_id}"


def attempt_of(remote_id: str) -> tuple[str, int]:
    """Return the submission id and the number of an attempt from its id: see `remote_id_for`."""
    submission_id, _, number = remote_id.partition("--r")
    return submission_id, int(number or 1)
